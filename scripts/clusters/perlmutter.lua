-- Perlmutter: 4 A100 40 GB a node, each linked to every other, and 4 Slingshot NICs; a dragonfly of groups of 128 nodes.
return require "clusters.node" ("perlmutter", {
  device = "A100-SXM4-40GB", per_node = 4, intra = "mesh", links = 300, -- 4 NVLink 3 links to each of the three others
  nics = 4, nic_gbit = 200, fabric = "slingshot",
  nodes_per_group = 128, group_oversubscription = 2.0, -- groups of a dragonfly network
})
