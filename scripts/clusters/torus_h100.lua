-- 8 H100 a node in a torus: lines of 8 nodes at full rate, a quarter of it across lines.
return require "clusters.node" ("torus_h100", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "ib",
  nodes_per_group = 8, group_oversubscription = 4.0, -- lines of 8 nodes; across, a quarter of their links
})
