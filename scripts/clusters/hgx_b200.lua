-- 8 B200 SXM on NVSwitch, 8 NICs of 400 Gbit/s (DGX B200).
return require "clusters.node" ("hgx_b200", {
  device = "B200-SXM-180GB", links = 900, -- 18 NVLink 5 links of 50 GB/s each way
  nics = 8, nic_gbit = 400, fabric = "ib",
})
