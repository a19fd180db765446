-- 8 RTX 4090 on PCIe 4 x16. Each of two Xeons of the third generation has a switch with four
-- devices. A GeForce cannot write into another one's memory, so all data goes through the
-- processors. NCCL's log of such a box (nccl-tests' issue 307) counts 24 GB/s for a link, 10
-- between the processors and 5 for its one ring. One NIC of 100 Gbit/s.
return require "clusters.node" ("pcie_rtx4090", {
  device = "RTX4090-24GB", intra = "pcie", links = 31.5,
  pcie = { sockets = 2, switches = 2, socket_bytes_per_s = 10e9, peer = "off", intel = true },
  nics = 1, nic_gbit = 100, fabric = "ethernet",
})
