-- NVIDIA DGX-1: 8 V100 SXM2 in a hybrid cube mesh, 4 NICs of 100 Gbit/s.
return require "clusters.node" ("dgx_v100", {
  device = "V100-SXM2-32GB", intra = "nvlink", links = 150, -- 6 NVLink 2 links of 25 GB/s each way
  -- The number of rings of single links that the hybrid cube mesh has over its first n GPUs, both
  -- directions counted. (5 GPUs have no full ring: two of them must share the link of the way back.)
  rings = { [2] = 1, [3] = 2, [4] = 4, [5] = 2, [6] = 2, [7] = 4, [8] = 6 },
  nics = 4, nic_gbit = 100, fabric = "ib",
})
