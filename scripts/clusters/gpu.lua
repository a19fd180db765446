-- A cluster of any GPU of the library, by the GPU's name or a part of it: require "clusters.gpu" {
-- gpu = "H200", nodes = 2 }. A node has the usual form for its GPU: GPUs with NVLink are connected
-- by a switch, AMD's GPUs each with every other, and other GPUs by PCIe. Each GPU has one NIC, of
-- the rate that is usual for its generation. Options change the form.
local gpus, node = require "tandem.gpus", require "clusters.node"

-- GB/s of the NIC that came with each generation. CDNA2's is the share of one die: Frontier and LUMI have 4 x 25 GB/s for 8 dies.
local nics = { Volta = 12.5, Ampere = 25, Ada = 25, Hopper = 50, Blackwell = 50, CDNA2 = 12.5, CDNA3 = 50, CDNA4 = 50 }

local own = { "gpu", "name", "devices_per_node", "nics_per_node", "nic_gb_per_s", "fabric" }

return function(options)
  local name = gpus.named(options.gpu or "H100-SXM5-80GB")
  local g = gpus.gpus[name]
  local per_node = options.devices_per_node or 8
  local of_node = {}
  for key, value in pairs(options) do of_node[key] = value end
  for _, key in ipairs(own) do of_node[key] = nil end
  return node(options.name or name, {
    device = name, per_node = per_node,
    intra = not g.link and "pcie" or g.arch:find "^CDNA" and "mesh" or "nvswitch", links = g.link or g.pcie,
    nics = options.nics_per_node or per_node,
    nic_gbit = 8 * (options.nic_gb_per_s or nics[g.arch]), fabric = options.fabric,
  })(of_node)
end
