-- AWS p4d: 8 A100 40 GB on NVSwitch, 4 EFA NICs of 100 Gbit/s.
return require "clusters.node" ("p4d", {
  device = "A100-SXM4-40GB", links = 300,
  nics = 4, nic_gbit = 100, fabric = "efa1",
})
