-- 8 H100 a node in a dragonfly of 9 groups of 16 nodes: 8 routers a group, each with 2 nodes (800 GB/s), as much to the
-- 7 other routers of its group together, and half of it on 4 links to other groups, 4 to each pair.
return require "clusters.node" ("dragonfly_h100", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "ib",
  topology = {
    kind = "dragonfly", groups = 9, routers = 8, nodes = 2, ways_out = 4,
    link_bytes_per_s = 800e9 / 7, way_out_bytes_per_s = 100e9,
  },
})
