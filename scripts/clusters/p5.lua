-- AWS p5: 8 H100 on NVSwitch, 32 EFA NICs of 100 Gbit/s.
return require "clusters.node" ("p5", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 32, nic_gbit = 100, fabric = "efa2",
})
