-- A cluster from its parts: a device by name (clusters/devices.lua), how devices reach each other, NICs of so many
-- Gbit/s on a network by name (clusters/fabrics.lua).
--   device, per_node, links GB/s each way and device, intra = "nvswitch" | "nvlink" | "mesh" | "pcie",
--   nics, nic_gbit, fabric, and what else a cluster takes (oversubscription, nodes_per_group, rings, ...)
local device_named, fabric_named = require "clusters.devices", require "clusters.fabrics"
return function(name, spec)
  return function(options)
    local device, host_link = device_named(spec.device)
    local cluster = {
      name = name, nodes = options.nodes or 1, devices_per_node = spec.per_node or 8,
      intra = spec.intra or "nvswitch", intra_bytes_per_s = spec.links * 1e9,
      nics_per_node = spec.nics or 0, nic_bytes_per_s = (spec.nic_gbit or 0) * 1e9 / 8,
      fabric = fabric_named(spec.fabric or "ib"),
      host_link_bytes_per_s = host_link, host_bytes_per_s = spec.host_bytes_per_s,
      host_memory_bytes = spec.host_memory_bytes,
      oversubscription = spec.oversubscription or 1.0,
      nodes_per_group = spec.nodes_per_group, group_oversubscription = spec.group_oversubscription,
      rings = spec.rings,
      collective_launch_s = 8e-6,  -- one process a GPU, back to back: 6-10 us measured
      device = device,
    }
    return cluster
  end
end
