-- 8 A100 PCIe without bridges or switches, one NIC of 200 Gbit/s. PCIe 4 x16 to two EPYC of the
-- third generation. NCCL counts 24 GB/s between the two processors.
return require "clusters.node" ("pcie_a100", {
  device = "A100-PCIe-80GB", intra = "pcie", links = 31.5,
  pcie = { sockets = 2, socket_bytes_per_s = 24e9 },
  nics = 1, nic_gbit = 200, fabric = "ib",
})
