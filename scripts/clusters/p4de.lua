-- AWS p4de: 8 A100 80 GB on NVSwitch, 4 EFA NICs of 100 Gbit/s.
return require "clusters.node" ("p4de", {
  device = "A100-SXM4-80GB", links = 300,
  nics = 4, nic_gbit = 100, fabric = "efa1",
})
