-- NVIDIA DGX A100: 8 A100 SXM4 80 GB on NVSwitch, 8 NICs of 200 Gbit/s.
return require "clusters.node" ("dgx_a100", {
  device = "A100-SXM4-80GB", links = 300, -- 12 NVLink 3 links of 25 GB/s each way
  nics = 8, nic_gbit = 200, fabric = "ib",
  host_bytes_per_s = 36e9, -- 0.7 of a GPU's eighth of 410 GB/s (2 x 8 channels of DDR4-3200)
  host_memory_bytes = 2e12, -- datasheet: 2 TB of system memory (80 GB devices)
})
