-- Jean Zay, A100 partition: 8 A100 on NVSwitch, 4 Omni-Path ports of 100 Gbit/s.
return require "clusters.node" ("jean_zay_a100", {
  device = "A100-SXM4-80GB", links = 300,
  nics = 4, nic_gbit = 100, fabric = "omni_path",
})
