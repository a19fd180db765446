-- GB300 NVL72: 72 B300 of one NVLink domain are a node here; a NIC of 800 Gbit/s each.
return require "clusters.node" ("gb300_nvl72", {
  device = "GB300-279GB", per_node = 72, links = 900,
  nics = 72, nic_gbit = 800, fabric = "ib", -- ConnectX-8
})
