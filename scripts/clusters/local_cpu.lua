-- This machine: the ranks of the mesh share its cores and memory. The rates are rough figures for
-- one core; predictions use measurements of the machine itself.
return function(options)
  return {
    name = "local_cpu",
    is_local = true,
    nodes = 1,
    devices_per_node = 0,          -- 0: replaced later by the number of the mesh's ranks
    cores_per_node = options.cores or 0,
    intra = "host",
    intra_bytes_per_s = 5e9,       -- the rate of a copy through shared memory
    nics_per_node = 0,
    nic_bytes_per_s = 0,
    oversubscription = 1.0,
    collective_launch_s = 5e-6,
    device = {
      name = "CPU core", arch = "cpu", sms = 1,
      memory_bytes = 0,
      reserved_bytes = 64 << 20,   -- memory of the process itself and of MPI
      hbm_bytes_per_s = 10e9,
      -- AVX2 at about 2 GHz with two FMA units gives 64 GFLOP/s in fp32 and 32 in fp64; narrower types are emulated in fp32
      peak_flops = { f32 = 60e9, f64 = 30e9, bf16 = 60e9, f16 = 60e9, e4m3 = 60e9, e5m2 = 60e9, e8m0 = 60e9, e2m1x2 = 60e9 },
      block_scales = true,
      gemm_efficiency = 0.6,
      memory_efficiency = 0.7,
      launch_s = 0,
      kernel_floor_s = 200e-9,     -- the time of a call
      usd_per_hour = 0,
    },
  }
end
