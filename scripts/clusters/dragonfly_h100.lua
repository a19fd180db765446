-- 8 H100 a node in a dragonfly: groups of 16 nodes, all linked to all, at full rate within, half of it out of a group
-- (a switch has as many links to its nodes as to its group, and half as many to other groups).
return require "clusters.node" ("dragonfly_h100", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "ib",
  nodes_per_group = 16, group_oversubscription = 2.0,
})
