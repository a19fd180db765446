-- 8 MI300X, each linked to every other, 8 NICs of 400 Gbit/s (collectives are RCCL, modelled as NCCL).
return require "clusters.node" ("mi300x", {
  -- one xGMI link of 64 GB/s each way to each of the seven others
  device = "MI300X-192GB", intra = "mesh", links = 448,
  nics = 8, nic_gbit = 400, fabric = "roce",
})
