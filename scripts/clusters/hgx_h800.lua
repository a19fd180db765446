-- 8 H800 on NVSwitch: an H100 with fewer links; 8 NICs of 400 Gbit/s.
return require "clusters.node" ("hgx_h800", {
  device = "H800-SXM-80GB", links = 200, -- 8 NVLink 4 links of 25 GB/s each way
  nics = 8, nic_gbit = 400, fabric = "ib",
})
