-- The cluster of a row of published training runs. The row may name its GPU by any name that
-- tandem/gpus.lua knows.
local cells, gpus, megatrons = require "tandem.published.cells", require "tandem.gpus", require "tandem.published.megatron"
local recipes, network = require "tandem.published.recipes", require "tandem.published.network"

-- Returns the number of GPUs that the same NVLink switches connect. For GB200 and GB300, these are
-- the GPUs of a whole rack (18 trays of 4), unless the row names a smaller domain ("NVL36",
-- "NVL4").
local function domain_of(row, gpu, n, per_node)
  local said = tonumber((row.interconnect or ""):upper():match "NVL[%s%-]?(%d+)" or gpu:find "^GB" and row.gpu:upper():match "NVL[%s%-]?(%d+)")
  if not said and not gpu:find "^GB[23]00" then return per_node end
  local domain = math.tointeger(said or 72)
  if n <= domain then return n end
  for _, part in ipairs { domain, domain // 9 * 8, domain // 2, per_node } do
    if part > 0 and n % part == 0 then return part end
  end
  return per_node
end

-- Returns the power limit in watts that the cell of the GPU gives ("H100 500W"), or nil if it gives
-- none.
local function watts_of(row, gpu)
  local watts = tonumber(row.gpu:match "(%d+)%s?W%f[%W]" or row.gpu:match "(%d+)%s?[Ww]atts?%f[%W]")
  return watts and watts > 0 and watts <= 2 * gpus.gpus[gpu].watts and watts or nil
end

-- Returns the power limit for the plan in watts, or nil for the usual one. If the cell says that
-- power is limited but gives no number, the limit that pages.csv states for the row's page is
-- assumed (`watts_default`), or else the usual one.
local function limit_of(row, gpu)
  local watts = watts_of(row, gpu)
  if watts or not cells.has(row, "gpu", "power limit") then return watts end
  watts = tonumber(row.watts_default)
  cells.note_time("the limit of power is not stated; %d W are assumed", watts or gpus.gpus[gpu].watts)
  return watts
end

-- Returns the bytes of the buffers through which ranks of experts exchange tokens. The framework's
-- allocator does not count these buffers.
local function exchange_bytes(row, per_node)
  if cells.is_open(row.moe_experts) then return 0 end
  local sharers = cells.count(row, "cp", 1) * (cells.sequence(row) and cells.count(row, "tp", 1) or 1)
  return recipes.exchange_bytes(row, cells.count(row, "micro_batch", 1) * megatrons.tokens(row) // sharers, cells.count(row, "ep", 1), per_node)
end

-- Returns the library's name for the row's GPU. If its GPUs are linked only by PCIe, and the cell
-- of the GPU names no board, it is the PCIe card. Also returns the GB/s of PCIe if the GPUs are
-- linked by it.
local function gpu_of(row)
  local name, link = gpus.find(row.gpu), network.pcie(row.interconnect or "")
  if not name then cells.refuse("no such GPU in the library: %s", row.gpu) end
  -- PyTorch counts each die of an MI250 as a device
  if name:find "^MI250" and cells.count(row, "gpus_per_node", 8) < 8 then cells.refuse("gpu and gpus_per_node may count boards of two devices: %s, %s", row.gpu, row.gpus_per_node) end
  if not link or not gpus.gpus[name].link then return name, link end
  local card = name:gsub("%-SXM%d?", "-PCIe")
  local board = row.gpu:upper():find "SXM" or row.gpu:upper():find "HGX" or row.gpu:upper():find "DGX"
  if not board and gpus.gpus[card] then return card, link end
  cells.note("the links in these words are planned as NVLink: %s", row.interconnect)
  return name, nil
end

-- Returns the bytes of memory that the cell of the GPU gives ("A100 64GB"). Returns nil if the cell
-- gives none, or if the library's GPU of this name has as much. GH200's larger number includes the
-- memory of its host. The data sheet of MI250 gives the memory of a board, which has two devices.
local function memory_of(row, name)
  local text = row.gpu:upper():gsub("GIB", "GB"):gsub("%d+%.?%d*%s*[GT]B/S", ""):gsub("(%d),(%d%d%d)%f[%D]", "%1%2")
  local gb, own = tonumber(text:match "%f[%d](%d%d%d?)%s*GB%f[%W]"), gpus.gpus[name].memory * 1048576
  if name:find "^MI250" and gb == 128 then gb = 64 end
  if gb and math.abs(gb * 1e9 / 8 / own - 1) < 0.12 then return nil end -- the cell gives the memory of a node: "DGX A100 640GB"
  if not gb or name:find "^GH" or math.abs(gb * 1e9 / own - 1) < 0.12 then return nil end
  cells.note("the memory of %s is taken from the row; its other numbers are those of %s", row.gpu, name)
  return gb * 1e9
end

-- Returns the cluster of a row.
return function(row)
  local name, pcie = gpu_of(row)
  local n, per_node = cells.count(row, "n_gpus"), cells.count(row, "gpus_per_node", 8)
  local nics, nic_gb_per_s = network.cards(row.interconnect or "", per_node, gpus.gpus[name].arch)
  if not cells.is_open(row.nic_gb_per_s) then nics, nic_gb_per_s = per_node, tonumber(row.nic_gb_per_s) end
  if not nics and n > per_node and network.has_rate(row.interconnect or "") then
    cells.note("the network is not known: %s; the usual card of the GPU is assumed", row.interconnect:sub(1, 60))
  end
  local domain = domain_of(row, name, n, per_node)
  if domain > per_node then
    if nics then nics = nics * (domain // per_node) end
    per_node = domain
  end
  if n < per_node then per_node, nics = n, nil end
  if n % per_node ~= 0 then
    cells.note("%d GPUs do not fill nodes of %d; smaller nodes are planned", n, per_node)
    nics = nil
    while n % per_node ~= 0 do per_node = per_node - 1 end
  end
  local cluster = require "clusters.gpu" { gpu = name, nodes = (n + per_node - 1) // per_node, devices_per_node = per_node,
    nics_per_node = nics, nic_gb_per_s = nic_gb_per_s, watts = limit_of(row, name) }
  -- Tensor cores multiply TF32 at half the rate of 16-bit numbers.
  if (cells.has(row, "precision", "^tf32") or cells.has(row, "precision", "^f%a*32%s*%(tf32")) and gpus.gpus[name].bf16 then cluster.device.peak_flops.f32 = gpus.gpus[name].bf16 / 2 * 1e12 end
  local four = cells.is_float4(row) and gpus.gpus[name].fp4
  if four then cluster.device.peak_flops.e4m3 = four * 1e12 end
  cluster.device.reserved_bytes = cluster.device.reserved_bytes + exchange_bytes(row, per_node)
  if pcie and pcie > 0 and cluster.intra == "pcie" then
    cluster.intra_bytes_per_s, cluster.host_link_bytes_per_s = pcie * 1e9, .88 * pcie * 1e9
  end
  cluster.device.memory_bytes = memory_of(row, name) or cluster.device.memory_bytes
  if recipes.no_nvls(row) then cluster.fabric.no_nvls = true end
  if megatrons.is_graph(row) then cluster.device.kernel_floor_s = math.max(2e-6, cluster.device.kernel_floor_s - 2e-6) end
  return cluster
end
