-- GB200 NVL72: a node is one NVLink domain of 72 B200, each with a NIC of 400 Gbit/s.
return require "clusters.node" ("gb200_nvl72", {
  device = "GB200-186GB", per_node = 72, links = 900, -- one NVLink domain: 18 trays of 4 GPUs
  nics = 72, nic_gbit = 400, fabric = "ib", -- one ConnectX-7 for each GPU
})
