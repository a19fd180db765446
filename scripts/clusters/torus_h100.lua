-- 8 H100 a node in a torus of 8 x 8 x 8 nodes, which are numbered along its lines. Six links share a node's 400 GB/s.
return require "clusters.node" ("torus_h100", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "ib",
  topology = { kind = "torus", sizes = { 8, 8, 8 }, link_bytes_per_s = 400e9 / 6 },
})
