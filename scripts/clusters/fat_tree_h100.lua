-- 8 H100 a node, RoCE at 400 Gbit/s, in pods of 32 nodes; the uplink of a pod has a seventh of the rate of its nodes together.
return require "clusters.node" ("fat_tree_h100", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "roce",
  nodes_per_group = 32, group_oversubscription = 7.0, -- pods of 256 GPUs; their uplinks are oversubscribed 7 : 1
})
