-- GCP A3 Mega: 8 H100 on NVSwitch, 8 NICs of 200 Gbit/s, GPUDirect-TCPXO.
return require "clusters.node" ("a3_mega", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 8, nic_gbit = 200, fabric = "tcpxo",
})
