-- AWS p5en: 8 H200 on NVSwitch, 16 EFA NICs of 200 Gbit/s.
return require "clusters.node" ("p5en", {
  device = "H200-SXM-141GB", links = 450,
  nics = 16, nic_gbit = 200, fabric = "efa2",
})
