-- Networks between nodes, by name: what each adds to NCCL's own numbers for a NIC that does RDMA. `achieved`: the
-- part of a NIC's nominal rate that data reach; `message_s`: what a message takes longer than NCCL counts for
-- InfiniBand; `ramp_*`: filling the pipeline. "Fitted" values come from tests/bench/fit_comm.sh (docs/reference/fit_network.md);
-- all others from the network's own specification.
local fitted = require "tandem.fitted_fabrics"
local MiB = 1 << 20

-- A network's fitted numbers and its other known properties.
local function with(name, flags)
  for key, value in pairs(fitted[name]) do flags[key] = value end
  return flags
end

-- Bytes a NIC that fill the pipeline: mean of EFA's three, whose ranks have 12.5, 50 and 50 GB/s.
local fill = 0
for name, bytes_per_s in pairs { efa1 = 12.5e9, efa2 = 50e9, efa4 = 50e9 } do
  fill = fill + fitted[name].ramp_s * fitted[name].achieved * bytes_per_s / 3
end
-- ... of NICs of so many GB/s, with buffers so many times NCCL's own
local function ramp_s(gb_per_s, buffers) return (buffers or 1) * fill / (gb_per_s * 1e9) end

local fabrics = {
  -- InfiniBand EDR to NDR: NCCL's own constants are measured on it; it counts 24 of 25 and 48 of 50 GB/s.
  ib = { achieved = .96 },
  ib_sharp = { achieved = .96, sharp = true },
  -- RDMA over Ethernet: 4096-byte packets carry 66 bytes more of headers and gaps than InfiniBand's; a switch
  -- that stores and forwards them costs about 1 us a hop more.
  roce = { achieved = .945, message_s = 2e-6 },
  -- Elastic Fabric Adapter (SRD over Ethernet), fitted. The first generation cannot promise that 128-byte stores
  -- arrive whole, so its plugin leaves only Simple.
  efa1 = with("efa1", { simple_only = true }),
  efa2 = with("efa2", {}),
  efa4 = with("efa4", {}),
  -- GPUDirect-TCPX(O): TCP from device memory. Its required configuration allows rings and trees with Simple,
  -- and no NVLink SHARP, and asks for buffers of 8 MiB, twice NCCL's own; a small all-reduce of two nodes takes
  -- about 123 us (4.5 us a message more than Simple's own). What is not InfiniBand fills its pipeline as EFA does,
  -- in bytes a NIC (mean of the three above), half of it at 7.6 MiB; with twice the buffers twice that. 34 us to
  -- spread a message (mean of the first two).
  tcpxo = { achieved = .96, message_s = 4.5e-6, ramp_s = ramp_s(25, 2), ramp_bytes = 15.2 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
  tcpx = { achieved = .90, message_s = 4.5e-6, ramp_s = ramp_s(25, 2), ramp_bytes = 15.2 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
  -- Omni-Path: the host's cores move the data, without RDMA to device memory: as EFA's first generation, with
  -- the latency of its own specification.
  omni_path = { achieved = .849, message_s = 10e-6, ramp_s = ramp_s(12.5), ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true },
  -- Slingshot: Ethernet with 200 Gbit/s NICs by libfabric, about 2 us end to end.
  slingshot = { achieved = .92, message_s = 5e-6, ramp_s = ramp_s(25), ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true },
  -- Plain TCP through the host's memory.
  ethernet = { achieved = .85, message_s = 30e-6, ramp_s = ramp_s(12.5), ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
}
return function(name)
  if type(name) == "table" then error("clusters.fabrics is a list of networks between nodes, no cluster", 0) end
  local f = fabrics[name]
  if f == nil then error("clusters.fabrics knows no network '" .. tostring(name) .. "'") end
  f.name = name
  return f
end
