-- Networks between nodes, by name: each row corrects NCCL's own numbers for a NIC that does RDMA.
-- `achieved` is the usable fraction of a NIC's nominal rate. `message_s` is added to the latency of
-- each message that NCCL's model of InfiniBand gives. `ramp_*` describes how large messages must be to
-- fill the pipeline. "Fitted" values come from tests/bench/fit_comm.sh (docs/reference/fit_network.md).
-- All other values come from the network's own specification. Units are seconds and bytes.
local fitted = require "tandem.fitted_fabrics"
local MiB = 1 << 20

-- Returns the fitted numbers of a network, with the properties in `flags` added.
local function with(name, flags)
  for key, value in pairs(fitted[name]) do flags[key] = value end
  return flags
end

-- A network without a fit takes the means of two numbers over the three generations of EFA:
-- spread_s, and the bytes of each NIC that fill the pipeline. In these generations, a rank's share of
-- the NICs is 12.5, 50 and 50 GB/s.
local fill, spread_s = 0, 0
for name, bytes_per_s in pairs { efa1 = 12.5e9, efa2 = 50e9, efa4 = 50e9 } do
  fill = fill + fitted[name].ramp_s * fitted[name].achieved * bytes_per_s / 3
  spread_s = spread_s + fitted[name].spread_s / 3
end

-- Adds the ramp to a network without a fit, whose NICs have gb_per_s GB/s. The ramp ends when each channel has a chunk
-- of NCCL's buffers. If the buffers (`buffer_bytes`) are n times as large as NCCL's own, the ramp takes n times as long.
local function like_efa(f, gb_per_s)
  f.ramp_s, f.spread_s = (f.buffer_bytes or 4 * MiB) / (4 * MiB) * fill / (gb_per_s * 1e9), spread_s
  return f
end

local fabrics = {
  -- InfiniBand EDR to NDR. NCCL's authors measured its constants on InfiniBand. NCCL counts 24 of
  -- 25 GB/s, and 48 of 50 GB/s.
  ib = { achieved = .96 },
  ib_sharp = { achieved = .96, sharp = true },
  -- RDMA over Ethernet. A packet of 4096 bytes has 66 bytes more of headers and gaps than on
  -- InfiniBand. A store-and-forward switch adds about 1 us to each hop.
  roce = { achieved = .945, message_s = 2e-6 },
  -- Elastic Fabric Adapter (SRD over Ethernet), fitted. In the first generation, a store of 128
  -- bytes may arrive in parts, so its plugin allows only the protocol Simple.
  efa1 = with("efa1", { simple_only = true }),
  efa2 = with("efa2", {}),
  efa4 = with("efa4", {}),
  -- GPUDirect-TCPX(O): TCP from device memory. Its required configuration allows rings and trees with the
  -- protocol Simple, but no NVLink SHARP. Its buffers have 8 MiB, twice NCCL's own. A small all-reduce of
  -- two nodes takes about 123 us. That is 4.5 us more for each message than the protocol Simple explains.
  tcpxo = like_efa({ achieved = .96, message_s = 4.5e-6, buffer_bytes = 8 * MiB, simple_only = true, no_nvls = true }, 25),
  tcpx = like_efa({ achieved = .90, message_s = 4.5e-6, buffer_bytes = 8 * MiB, simple_only = true, no_nvls = true }, 25),
  -- Omni-Path: the host's cores move the data, without RDMA to device memory. The row copies EFA's
  -- first generation, with the latency of Omni-Path's own specification.
  omni_path = like_efa({ achieved = fitted.efa1.achieved, message_s = 10e-6, simple_only = true }, 12.5),
  -- Slingshot: Ethernet with 200 Gbit/s NICs over libfabric, about 2 us end to end.
  slingshot = like_efa({ achieved = .92, message_s = 5e-6, simple_only = true }, 25),
  -- Plain TCP through host memory.
  ethernet = like_efa({ achieved = .85, message_s = 30e-6, simple_only = true, no_nvls = true }, 12.5),
}
return function(name)
  if type(name) == "table" then error("clusters.fabrics is a list of networks between nodes, not a cluster", 0) end
  local f = fabrics[name]
  if f == nil then error("clusters.fabrics has no network '" .. tostring(name) .. "'") end
  f.name = name
  return f
end
