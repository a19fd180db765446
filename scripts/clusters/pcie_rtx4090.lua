-- 8 RTX 4090 on PCIe 4 x16. Each of two Xeons of the third generation has a switch with four
-- devices. One NIC of 100 Gbit/s. A GeForce cannot write into the memory of another one, so all
-- data goes through the processors. NCCL's log of such a box is in issue 307 of nccl-tests. There a
-- link has 24 GB/s, the path between the processors 10 GB/s, and the one ring 5 GB/s.
return require "clusters.node" ("pcie_rtx4090", {
  device = "RTX4090-24GB", intra = "pcie", links = 31.5,
  pcie = { sockets = 2, switches = 2, socket_bytes_per_s = 10e9, peer = "off", intel = true },
  nics = 1, nic_gbit = 100, fabric = "ethernet",
})
