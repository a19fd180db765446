-- GCP A3 High: 8 H100 on NVSwitch, 4 NICs of 200 Gbit/s, GPUDirect-TCPX.
return require "clusters.node" ("a3_high", {
  device = "H100-SXM5-80GB", links = 450,
  nics = 4, nic_gbit = 200, fabric = "tcpx",
})
