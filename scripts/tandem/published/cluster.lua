-- The cluster of a row of published training runs. The row may name its GPU by any name that the library knows.
local cells, gpus, megatrons = require "tandem.published.cells", require "tandem.gpus", require "tandem.published.megatron"
local recipes = require "tandem.published.recipes"

-- Returns a node's NICs and their GB/s: "8x400Gb IB", "4x ConnectX-7 IB NDR 400 Gb/s" (NICs for storage are others), or the rate
-- of all of them, "400Gb/s per node", "1600Gb/s RoCE node-node". A rate without a number, "IB 400 Gb/s", is of one NIC a GPU.
local function nics_of(row, per_node)
  local text = row.interconnect or ""
  text = text:match "[Cc]ompute: ([^,;]*)" or text
  text = text:gsub("G[Bb][Pp][Ss]", "Gb/s"):gsub("Gbit/s", "Gb/s"):gsub("(%d)%s+x%s*(%d)", "%1x%2")
  local n, gbit = text:match "(%d+)x(%d+)%s*Gb"
  if not n then n, gbit = text:match "(%d+)x%s[^,;]-%s(%d+)%s*Gb" end
  -- Ethernet with a rate is assumed to be one NIC of a node, unless the text says otherwise.
  local ethernet = not n and (text:match "%f[%d](%d+)GbE" or text:match "%f[%d](%d+)%s?G[%w/]* Ethernet")
  if ethernet then return 1, tonumber(ethernet) / 8 end
  local whole = text:match "EFA%w* (%d%d%d%d)%s*Gb/s" or text:match "(%d%d%d%d)%s*Gb/s EFA" or text:match "(%d+)%s*Gb/s per node" or text:match "(%d+)%s*Gb/s %a+ node%-node"
  if n then return math.tointeger(tonumber(n)), tonumber(gbit) / 8 end
  if whole then return per_node, tonumber(whole) / 8 / per_node end
  local each = text:match "%f[%a]IB (%d+)%s*Gb/s" or text:match "%f[%a][NHX]DR (%d+)%s*Gb" or text:match "(%d+)%s*Gb/s RDMA" or text:match "(%d+)%s*Gb/s [NHX]DR" or
    text:match "(%d+)%s*Gb/s RoCE" or text:match "(%d+)%s*Gb/s CX%-%d"
  if each then return per_node, tonumber(each) / 8 end
  return nil, nil
end

-- Returns how many GPUs are connected by the same NVLink switches. For GB200 and GB300 these are
-- the GPUs of a whole rack (18 trays of 4), unless the row names a smaller domain ("NVL36",
-- "NVL4").
local function domain_of(row, gpu, n, per_node)
  local said = tonumber((row.interconnect or ""):match "NVL(%d+)")
  if not said and not gpu:find "^GB[23]00" then return per_node end
  local domain = math.tointeger(said or 72)
  if n <= domain then return n end
  for _, part in ipairs { domain, domain // 9 * 8, domain // 2, per_node } do
    if part > 0 and n % part == 0 then return part end
  end
  return per_node
end

-- Returns the power limit in watts that the cell of the GPU gives ("H100 500W"). Returns nil for
-- the usual limit.
local function watts_of(row, gpu)
  local watts = tonumber(row.gpu:match "(%d+)%s?W%f[%W]")
  return watts and watts > 0 and watts <= 2 * gpus.gpus[gpu].watts and watts or nil
end

-- Returns the bytes of the buffers through which ranks of experts exchange tokens. The framework's allocator does not
-- count these buffers.
local function exchange_bytes(row, per_node)
  if cells.is_open(row.moe_experts) then return 0 end
  local sharers = cells.count(row, "cp", 1) * (cells.sequence(row) and cells.count(row, "tp", 1) or 1)
  return recipes.exchange_bytes(row, cells.count(row, "micro_batch", 1) * megatrons.tokens(row) // sharers, cells.count(row, "ep", 1), per_node)
end

-- Returns the cluster of `row`.
return function(row)
  local name = gpus.find(row.gpu)
  if not name then cells.refuse("no such GPU in the library: %s", row.gpu) end
  if cells.has(row, "gpu", "power limit") and not watts_of(row, name) then
    cells.note_time("the limit of power is not stated; the usual %d W are assumed", gpus.gpus[name].watts)
  end
  local n, per_node = cells.count(row, "n_gpus"), cells.count(row, "gpus_per_node", 8)
  local nics, nic_gb_per_s = nics_of(row, per_node)
  local domain = domain_of(row, name, n, per_node)
  if domain > per_node then
    if nics then nics = nics * (domain // per_node) end
    per_node = domain
  end
  if n < per_node then per_node, nics = n, nil end
  if n % per_node ~= 0 then
    cells.note("%d GPUs do not fill nodes of %d; smaller nodes stand for them", n, per_node)
    nics = nil
    while n % per_node ~= 0 do per_node = per_node - 1 end
  end
  local cluster = require "clusters.gpu" { gpu = name, nodes = (n + per_node - 1) // per_node, devices_per_node = per_node,
    nics_per_node = nics, nic_gb_per_s = nic_gb_per_s, watts = watts_of(row, name) }
  -- Tensor cores multiply TF32 at half the rate of 16-bit numbers.
  if (cells.has(row, "precision", "^tf32") or cells.has(row, "precision", "^f%a*32%s*%(tf32")) and gpus.gpus[name].bf16 then cluster.device.peak_flops.f32 = gpus.gpus[name].bf16 / 2 * 1e12 end
  local four = cells.is_float4(row) and gpus.gpus[name].fp4
  if four then cluster.device.peak_flops.e4m3 = four * 1e12 end
  cluster.device.reserved_bytes = cluster.device.reserved_bytes + exchange_bytes(row, per_node)
  if recipes.no_nvls(row) then cluster.fabric.no_nvls = true end
  if megatrons.is_graph(row) then cluster.device.kernel_floor_s = math.max(2e-6, cluster.device.kernel_floor_s - 2e-6) end
  return cluster
end
