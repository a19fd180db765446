-- Networks between nodes, by name: the corrections that each adds to NCCL's own numbers for a NIC
-- that does RDMA. `achieved` is the usable fraction of a NIC's nominal rate. `message_s` is the
-- additional time of a message compared with InfiniBand, as NCCL models it. `ramp_*` describes how
-- large messages must be to fill the pipeline. "Fitted" values come from tests/bench/fit_comm.sh
-- (docs/reference/fit_network.md); all others from the network's own specification.
local fitted = require "tandem.fitted_fabrics"
local MiB = 1 << 20

-- A network's fitted numbers and its other known properties.
local function with(name, flags)
  for key, value in pairs(fitted[name]) do flags[key] = value end
  return flags
end

-- Bytes of each NIC that fill the pipeline: the mean of EFA's three generations, whose ranks have
-- 12.5, 50 and 50 GB/s.
local fill = 0
for name, bytes_per_s in pairs { efa1 = 12.5e9, efa2 = 50e9, efa4 = 50e9 } do
  fill = fill + fitted[name].ramp_s * fitted[name].achieved * bytes_per_s / 3
end
-- Returns the ramp of NICs of gb_per_s GB/s, with `buffers` times NCCL's own buffers.
local function ramp_s(gb_per_s, buffers) return (buffers or 1) * fill / (gb_per_s * 1e9) end

local fabrics = {
  -- InfiniBand EDR to NDR. NCCL's own constants were measured on it; it counts 24 of 25 and 48 of
  -- 50 GB/s.
  ib = { achieved = .96 },
  ib_sharp = { achieved = .96, sharp = true },
  -- RDMA over Ethernet. 4096-byte packets carry 66 bytes more of headers and gaps than
  -- InfiniBand's. A store-and-forward switch costs about 1 us more for each hop.
  roce = { achieved = .945, message_s = 2e-6 },
  -- Elastic Fabric Adapter (SRD over Ethernet), fitted. The first generation cannot promise that 128-byte stores arrive
  -- whole, so its plugin allows only the protocol Simple.
  efa1 = with("efa1", { simple_only = true }),
  efa2 = with("efa2", {}),
  efa4 = with("efa4", {}),
  -- GPUDirect-TCPX(O): TCP from device memory. Its required configuration allows rings and trees
  -- with Simple, no NVLink SHARP, and buffers of 8 MiB, twice NCCL's own. A small all-reduce of two
  -- nodes takes about 123 us (4.5 us a message more than Simple alone). Networks other than InfiniBand are assumed to fill
  -- their pipeline like EFA, in bytes of each NIC (mean of the three above). The 7.6 MiB of ramp_bytes (EFA's first
  -- generation) and the 34 us of spread_s (mean of the three) come from an earlier fit; today's fit has 11.4 MiB and 36 us.
  -- Twice the buffers take twice the time and the bytes.
  tcpxo = { achieved = .96, message_s = 4.5e-6, ramp_s = ramp_s(25, 2), ramp_bytes = 15.2 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
  tcpx = { achieved = .90, message_s = 4.5e-6, ramp_s = ramp_s(25, 2), ramp_bytes = 15.2 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
  -- Omni-Path: the host's cores move the data, without RDMA to device memory. It is modelled like
  -- EFA's first generation, with the latency of its own specification.
  omni_path = { achieved = .849, message_s = 10e-6, ramp_s = ramp_s(12.5), ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true },
  -- Slingshot: Ethernet with 200 Gbit/s NICs over libfabric, about 2 us end to end.
  slingshot = { achieved = .92, message_s = 5e-6, ramp_s = ramp_s(25), ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true },
  -- Plain TCP through host memory.
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
