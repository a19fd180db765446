-- Leonardo Booster: 4 custom A100 a node, each linked to every other, and 4 ports of HDR100; the network is a dragonfly+.
return require "clusters.node" ("leonardo", {
  device = "A100-SXM4-40GB", per_node = 4, intra = "mesh", links = 300,
  nics = 4, nic_gbit = 100, fabric = "ib", -- two cards with two ports of HDR100 each
  nodes_per_group = 180, group_oversubscription = 1.5, -- groups of a dragonfly+ network
})
