-- 8 L40S on PCIe 4 x16. Each of two Xeons of the fourth generation has a PCIe switch with four
-- devices. NCCL counts 22 GB/s between the Xeons. One NIC of 200 Gbit/s.
return require "clusters.node" ("pcie_l40s", {
  device = "L40S-48GB", intra = "pcie", links = 31.5,
  pcie = { sockets = 2, switches = 2, socket_bytes_per_s = 22e9, intel = true },
  nics = 1, nic_gbit = 200, fabric = "roce",
})
