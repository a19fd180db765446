-- 8 RTX 4090 on PCIe 4 x16; one NIC of 100 Gbit/s.
return require "clusters.node" ("pcie_rtx4090", {
  device = "RTX4090-24GB", intra = "pcie", links = 31.5,
  nics = 1, nic_gbit = 100, fabric = "ethernet",
})
