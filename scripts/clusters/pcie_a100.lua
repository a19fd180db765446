-- 8 A100 PCIe without bridges: PCIe 4 x16; one NIC of 200 Gbit/s.
return require "clusters.node" ("pcie_a100", {
  device = "A100-PCIe-80GB", intra = "pcie", links = 31.5,
  nics = 1, nic_gbit = 200, fabric = "ib",
})
