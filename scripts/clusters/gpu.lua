-- A cluster of any GPU of the library, by its name or an alias: require "clusters.gpu" { gpu = "H200",
-- nodes = 2 }. Nodes are what is usual for the GPU: devices on a switch where it has links, else on
-- PCIe, and a NIC each of the generation that came with it.
local gpus = require "tandem.gpus"

local GB = 1e9
-- launch and ramp of collectives, fitted to nccl-tests on 8 A100 and 8 H200; a NIC's GB/s
local fabrics = {
  Volta = { nic = 12.5, ramp = 40e-6, ramp_bytes = 4 << 20 },
  Ampere = { nic = 25, ramp = 40e-6, ramp_bytes = 4 << 20 },
  Ada = { nic = 25, ramp = 40e-6, ramp_bytes = 4 << 20 },
  Hopper = { nic = 50, ramp = 70e-6, ramp_bytes = 32 << 20 },
  Blackwell = { nic = 50, ramp = 70e-6, ramp_bytes = 32 << 20 },
  CDNA3 = { nic = 50, ramp = 70e-6, ramp_bytes = 32 << 20 },
  CDNA4 = { nic = 50, ramp = 70e-6, ramp_bytes = 32 << 20 },
}

return function(options)
  local name = gpus.find(options.gpu or "H100-SXM5-80GB")
  if not name then error(("clusters.gpu: no GPU is called '%s'"):format(options.gpu)) end
  local g = gpus.gpus[name]
  local f = fabrics[g.arch]
  local per_node = options.devices_per_node or 8
  return {
    name = options.name or name, nodes = options.nodes or 1, devices_per_node = per_node,
    intra = g.link and "nvswitch" or "pcie",
    intra_bytes_per_s = (g.link or g.pcie) * GB,
    host_link_bytes_per_s = 0.87 * g.pcie * GB,
    nics_per_node = options.nics_per_node or per_node,
    nic_bytes_per_s = (options.nic_gb_per_s or f.nic) * GB,
    oversubscription = 1.0,
    collective_launch_s = 8e-6, collective_ramp_s = f.ramp, collective_ramp_bytes = f.ramp_bytes,
    device = gpus.device(name),
  }
end
