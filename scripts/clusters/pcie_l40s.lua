-- 8 L40S on PCIe 4 x16; one NIC of 200 Gbit/s.
return require "clusters.node" ("pcie_l40s", {
  device = "L40S-48GB", intra = "pcie", links = 31.5,
  nics = 1, nic_gbit = 200, fabric = "roce",
})
