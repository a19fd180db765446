-- GCP A3 Ultra: 8 H200 on NVSwitch, 8 NICs of 400 Gbit/s, RoCE.
return require "clusters.node" ("a3_ultra", {
  device = "H200-SXM-141GB", links = 450,
  nics = 8, nic_gbit = 400, fabric = "roce",
})
