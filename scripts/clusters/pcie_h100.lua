-- 8 H100 PCIe without bridges: PCIe 5 x16; one NIC of 400 Gbit/s.
return require "clusters.node" ("pcie_h100", {
  device = "H100-PCIe-80GB", intra = "pcie", links = 63,
  nics = 1, nic_gbit = 400, fabric = "ib",
})
