-- Reads the cell `interconnect` of a row of published collectives, and makes a cluster of the row's
-- GPU with the links and the network that the cell states. A row whose network is not stated is
-- refused, because its time is mostly the network's.
local cells, gpus, network = require "tandem.published.cells", require "tandem.gpus", require "tandem.published.network"

-- Words that name networks, each with a cluster of the library that has this network. The first
-- match in this list counts. EFA's versions without a number come with the GPU (of_efa).
local kinds = {
  { "efa[%s%-]*v4", "p6_b200" }, { "%f[%w]p6%f[%W]", "p6_b200" }, { "efa[%s%-]*v3", "p5en" }, { "%f[%w]p5en?%f[%W]", "p5en" },
  { "efa[%s%-]*v2", "p5" }, { "efa[%s%-]*v1", "p4de" }, { "efa[%s:]+4x100gb", "p4de" }, { "%f[%w]p4de?%f[%W]", "p4de" }, { "%f[%w]p5%f[%W]", "p5" },
  { "tcpxo", "a3_mega" }, { "fastrak", "a3_mega" }, { "tcpx", "a3_high" }, { "a3[%s%-]?mega", "a3_mega" }, { "a3[%s%-]?high", "a3_high" },
  { "a3[%s%-]?ultra", "a3_ultra" }, { "omni%-?%s?path", "jean_zay_a100" }, { "slingshot", "perlmutter" }, { "roce", "a3_ultra" },
  { "infiniband", "dgx_h100" }, { "%f[%a]ib%f[%A]", "dgx_h100" }, { "%f[%a][efhnx]dr%f[%A]", "dgx_h100" }, { "rdma", "dgx_h100" },
  { "ethernet", "pcie_rtx4090" }, { "gbe%f[%A]", "pcie_rtx4090" }, { "gige", "pcie_rtx4090" }, { "%f[%a]tcp%f[%A]", "pcie_rtx4090" },
}
local of_efa = { Volta = "p4de", Ampere = "p4de", Hopper = "p5", Blackwell = "p6_b200" }

-- Machines with one known network. Their names state its rate, too. The maker's name of a DGX says
-- which cards it has, but not that its cell means InfiniBand.
local machines = {
  { "dgx[%s%-]?a100", "dgx_a100" }, { "dgx[%s%-]?h[12]00", "dgx_h100" }, { "dgx[%s%-]?b[23]00", "hgx_b200" }, { "nd[%w%s%-_]*a100", "azure_nd_a100" },
  { "nd[%w%s%-_]*h[12]00", "dgx_h100" }, { "tcpxo", "a3_mega" }, { "fastrak", "a3_mega" }, { "tcpx", "a3_high" }, { "a3[%s%-]?mega", "a3_mega" },
  { "a3[%s%-]?high", "a3_high" }, { "a3[%s%-]?ultra", "a3_ultra" }, { "perlmutter", "perlmutter" }, { "leonardo", "leonardo" }, { "jean[%s%-]?zay", "jean_zay_a100" },
  { "efa[%s%-]*v4", "p6_b200" }, { "%f[%w]p6%f[%W]", "p6_b200" }, { "%f[%w]p5en%f[%W]", "p5en" },
}

local function first(text, list)
  for _, known in ipairs(list) do if text:find(known[1]) then return known[2] end end
end

local function cluster(name) return require("clusters." .. name) {} end

-- Returns the cell in lower case, without the networks and links that it denies: "no IB".
local function stated(cell)
  local names = { "nvlink%d?", "infiniband", "%f[%a]ib%f[%A]", "roce", "rdma", "efa", "ethernet" }
  return (cells.without_denied(cell:lower():gsub("(%d)x(%a)", "%1x %2"), names))
end

-- Returns the name of the network, the number of a node's cards and the GB/s of each.
local function network_of(cell, per_node, arch)
  local text = stated(cell)
  local name = first(text, kinds) or text:find "%f[%a]efa%f[%A]" and of_efa[arch]
  if not name then
    if network.has_rate(cell) then cells.refuse("the kind of its network is not stated: %s", cell:sub(1, 60)) end
    cells.refuse "its network between nodes is not named"
  end
  local own = cluster(name)
  local n, gb_per_s = network.cards(cell, per_node, arch)
  if n == per_node and gb_per_s < 100 and text:find "%f[%a]xdr" then gb_per_s = 100 end -- XDR is the rate of one port
  -- A cell that gives only the rate of a whole node means this network's usual cards of that sum.
  local usual = own.nics_per_node * own.nic_bytes_per_s / 1e9
  if n and n == per_node and math.abs(n * gb_per_s / usual - 1) < 1e-6 then n, gb_per_s = own.nics_per_node, own.nic_bytes_per_s / 1e9 end
  local machine = first(text, machines)
  if not n and machine then
    local m = cluster(machine)
    n, gb_per_s = m.nics_per_node, m.nic_bytes_per_s / 1e9
  end
  if not n then cells.refuse("the speed of its network is not stated: %s", cell:sub(1, 60)) end
  return own.fabric.name, n, gb_per_s
end

-- Returns the library's name of the GPU, and the rate of PCIe in GB/s if the cell says that PCIe
-- alone links the GPUs. 0: it does not name PCIe's generation.
local function gpu_of(gpu, cell)
  local name = gpus.find(gpu)
  local text = cell:lower()
  local pcie = network.pcie(cell) or (text:find "no nvlink" or text:find "pcie only") and 0 or nil
  if not gpus.gpus[name].link and stated(cell):find "nvl" then cells.refuse("the library has no NVLink of this GPU: %s", cell:sub(1, 60)) end
  if not pcie or not gpus.gpus[name].link then return name, pcie end
  local card = name:gsub("%-SXM%d?", "-PCIe")
  local board = gpu:upper():find "SXM" or gpu:upper():find "HGX" or gpu:upper():find "DGX"
  return not board and gpus.gpus[card] and card or name, pcie
end

-- Superchips of GH200: a node has at most four, each linked to every other, or is one of NVL32.
local function form_of(name, per_node, cell)
  if not name:find "^GH200" or per_node <= 1 or cell:upper():find "NVL[%s%-]?32" then return nil end
  if per_node > 4 then cells.refuse("GH200 has no node of %d GPUs", per_node) end
  return "mesh"
end

-- row: gpu and interconnect as the row writes them; per_node: GPUs of a node; between: true if the
-- group has several nodes. Returns a cluster of one node.
return function(row)
  local cell = row.interconnect:gsub("%f[%a]OPA%f[%A]", "Omni-Path")
  local name, pcie = gpu_of(row.gpu, cell)
  local options = { gpu = name, devices_per_node = row.per_node }
  if row.between then options.fabric, options.nics_per_node, options.nic_gb_per_s = network_of(cell, row.per_node, gpus.gpus[name].arch) end
  local c = require "clusters.gpu" (options)
  if pcie then c.intra, c.intra_bytes_per_s = "pcie", 1e9 * (pcie > 0 and pcie or gpus.gpus[name].pcie) end
  c.intra = form_of(name, row.per_node, cell) or c.intra
  return c
end
