-- 8 H20 on NVSwitch, 8 NICs of 400 Gbit/s.
return require "clusters.node" ("hgx_h20", {
  device = "H20-96GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "ib",
})
