-- 8 H100 PCIe without bridges or switches, one NIC of 400 Gbit/s. PCIe 5 x16 to two Xeons of the
-- fifth generation. NCCL counts 40 GB/s between the two processors.
return require "clusters.node" ("pcie_h100", {
  device = "H100-PCIe-80GB", intra = "pcie", links = 63,
  pcie = { sockets = 2, socket_bytes_per_s = 40e9, intel = true },
  nics = 1, nic_gbit = 400, fabric = "ib",
})
