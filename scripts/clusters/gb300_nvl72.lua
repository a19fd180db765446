-- GB300 NVL72: a node is one NVLink domain of 72 B300, each with a NIC of 800 Gbit/s.
return require "clusters.node" ("gb300_nvl72", {
  device = "GB300-279GB", per_node = 72, links = 900,
  nics = 72, nic_gbit = 800, fabric = "ib", -- one ConnectX-8 for each GPU
})
