-- NVIDIA DGX H100: 8 H100 SXM5 80 GB on NVSwitch, 8 NICs of 400 Gbit/s.
return require "clusters.node" ("dgx_h100", {
  device = "H100-SXM5-80GB", links = 450, -- 18 NVLink 4 links of 25 GB/s each way
  nics = 8, nic_gbit = 400, fabric = "ib", -- ConnectX-7 cards, InfiniBand NDR
  host_memory_bytes = 2e12, -- datasheet: 2 TB of system memory
})
