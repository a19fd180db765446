-- AWS p6-b200: 8 B200 on NVSwitch, 8 EFA NICs of 400 Gbit/s.
return require "clusters.node" ("p6_b200", {
  device = "B200-SXM-180GB", links = 900,
  nics = 8, nic_gbit = 400, fabric = "efa4",
})
