-- Makes a cluster from its parts. These are the keys:
-- device: the device's name (tandem/gpus.lua)
-- per_node: the number of devices in a node
-- links: the rate of all links of a device within the node, in each direction (GB/s)
-- intra: the links within a node: "nvswitch", "nvlink", "mesh" or "pcie"
-- pcie: the structure of a node with PCIe (cluster.pcie in docs/reference/plan.md)
-- nics, nic_gbit: the number of NICs in a node; the rate of a NIC in Gbit/s
-- fabric: the name of the network between nodes (clusters/fabrics.lua)
-- Other keys are options of a cluster, such as oversubscription or nodes_per_group.
local gpus, fabric_named = require "tandem.gpus", require "clusters.fabrics"
-- price of one GPU in USD per hour: the median of on-demand listings of May 2026
local prices = { ["A100-SXM4-80GB"] = 1.64, ["H100-SXM5-80GB"] = 2.95, ["H200-SXM-141GB"] = 4.00 }
-- The options of a cluster that a plan may set, besides the cluster's name.
local known = { "nodes", "watts", "oversubscription", "nodes_per_group", "group_oversubscription", "pcie", "topology" }
local is_known = {}
for _, key in ipairs(known) do is_known[key] = true end

-- Merges a table of the library (a PCIe box, a topology) with the plan's changes.
local function part_of(spec, options)
  local part = {}
  for key, value in pairs(spec or {}) do part[key] = value end
  for key, value in pairs(options or {}) do part[key] = value end
  return next(part) and part
end

return function(name, spec)
  if type(spec) ~= "table" then error("clusters.node makes a cluster from its parts; it is not a cluster itself", 0) end
  return function(options)
    for key in pairs(options) do
      if not is_known[key] then
        error(("clusters.%s has no option '%s'; it has %s"):format(name, tostring(key), table.concat(known, ", ")), 2)
      end
    end
    local device = gpus.device(spec.device, options.watts)
    device.usd_per_hour = prices[spec.device] or 0
    return {
      name = name, nodes = options.nodes or 1, devices_per_node = spec.per_node or 8,
      intra = spec.intra or "nvswitch", pcie = part_of(spec.pcie, options.pcie), intra_bytes_per_s = spec.links * 1e9,
      nics_per_node = spec.nics or 0, nic_bytes_per_s = (spec.nic_gbit or 0) * 1e9 / 8,
      fabric = fabric_named(spec.fabric or "ib"),
      host_link_bytes_per_s = .88 * gpus.gpus[spec.device].pcie * 1e9, -- measured: 55.4 GB/s over a link of 63 GB/s
      host_bytes_per_s = spec.host_bytes_per_s,
      host_memory_bytes = spec.host_memory_bytes,
      oversubscription = options.oversubscription or spec.oversubscription or 1.0,
      nodes_per_group = options.nodes_per_group or spec.nodes_per_group,
      group_oversubscription = options.group_oversubscription or spec.group_oversubscription,
      topology = part_of(spec.topology, options.topology),
      rings = spec.rings,
      collective_launch_s = 8e-6,  -- with one process for each GPU and calls back to back, 6-10 us were measured
      device = device,
    }
  end
end
