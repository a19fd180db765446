-- Azure ND A100 v4: 8 A100 on NVSwitch, 8 HDR NICs.
return require "clusters.node" ("azure_nd_a100", {
  device = "A100-SXM4-80GB", links = 300,
  nics = 8, nic_gbit = 200, fabric = "ib",
})
