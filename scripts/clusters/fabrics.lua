-- Networks between nodes, by name: what each adds to NCCL's own numbers for a NIC that does RDMA. `achieved`: the
-- part of a NIC's nominal rate that data reach; `message_s`: what a message takes longer than NCCL counts for
-- InfiniBand; `ramp_*`: filling the pipeline. What is marked "fitted" comes from tests/bench/fit_comm.sh (docs/network.md);
-- all others from the network's own specification.
local MiB = 1 << 20
local fabrics = {
  -- InfiniBand EDR to NDR: NCCL's own constants are measured on it; it counts 24 of 25 and 48 of 50 GB/s.
  ib = { achieved = .96 },
  ib_sharp = { achieved = .96, sharp = true },
  -- RDMA over Ethernet: 4096-byte packets carry 66 bytes more of headers and gaps than InfiniBand's; a switch
  -- that stores and forwards them costs about 1 us a hop more.
  roce = { achieved = .945, message_s = 2e-6 },
  -- Elastic Fabric Adapter (SRD over Ethernet), fitted. The first generation cannot promise that 128-byte stores
  -- arrive whole, so its plugin leaves only Simple.
  efa1 = { achieved = .849, message_s = 23.5e-6, ramp_s = 595e-6, ramp_bytes = 7.61 * MiB, spread_s = 62.6e-6, simple_only = true },
  efa2 = { achieved = .96, message_s = 12.8e-6, ramp_s = 289e-6, ramp_bytes = 42.3 * MiB, spread_s = 18.2e-6 },
  efa4 = { achieved = .985, message_s = 43.2e-6, ramp_s = 110e-6, ramp_bytes = 6.85 * MiB, spread_s = 20e-6 },
  -- GPUDirect-TCPX(O): TCP from device memory. Its required configuration allows rings and trees with Simple,
  -- and no NVLink SHARP; a small all-reduce of two nodes takes about 123 us (4.5 us a message more than Simple's
  -- own). What is not InfiniBand fills its pipeline as EFA does: 8.4 MB a NIC (mean of the three above, as
  -- bytes), half of it at 7.6 MiB; 34 us to spread a message (mean of the first two).
  tcpxo = { achieved = .96, message_s = 4.5e-6, ramp_s = 336e-6, ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
  tcpx = { achieved = .90, message_s = 4.5e-6, ramp_s = 336e-6, ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
  -- Omni-Path: the host's cores move the data, without RDMA to device memory: as EFA's first generation, with
  -- the latency of its own specification.
  omni_path = { achieved = .849, message_s = 10e-6, ramp_s = 672e-6, ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true },
  -- Slingshot: Ethernet with 200 Gbit/s NICs by libfabric, about 2 us end to end.
  slingshot = { achieved = .92, message_s = 5e-6, ramp_s = 336e-6, ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true },
  -- Plain TCP through the host's memory.
  ethernet = { achieved = .85, message_s = 30e-6, ramp_s = 672e-6, ramp_bytes = 7.6 * MiB, spread_s = 34e-6,
    simple_only = true, no_nvls = true },
}
return function(name)
  if type(name) == "table" then error("clusters.fabrics is a list of networks between nodes, no cluster", 0) end
  local f = fabrics[name]
  if f == nil then error("clusters.fabrics knows no network '" .. tostring(name) .. "'") end
  f.name = name
  return f
end
