-- 8 H200 SXM 141 GB on NVSwitch, 8 NICs of 400 Gbit/s.
return require "clusters.node" ("hgx_h200", {
  device = "H200-SXM-141GB", links = 450, -- 18 NVLink 4 links of 25 GB/s each way
  nics = 8, nic_gbit = 400, fabric = "ib",
  host_memory_bytes = 2e12, -- a board has no host memory of its own: as in a DGX H200
})
