-- 8 H100 a node in a dragonfly of 9 groups of 16 nodes. A group has 8 routers with 2 nodes each
-- (800 GB/s). A router has 800 GB/s to the 7 other routers of its group together, and 400 GB/s on 4
-- links to other groups. Each pair of groups has 4 links.
return require "clusters.node" ("dragonfly_h100", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "ib",
  topology = {
    kind = "dragonfly", groups = 9, routers = 8, nodes = 2, ways_out = 4,
    link_bytes_per_s = 800e9 / 7, way_out_bytes_per_s = 100e9,
  },
})
