-- NVIDIA DGX H100: 8 H100 SXM5 80 GB on NVSwitch, 8 NICs of 400 Gbit/s.
local MiB = 1 << 20
return function(options)
  return {
    name = "dgx_h100",
    nodes = options.nodes or 1,
    devices_per_node = 8,
    intra = "nvswitch",
    intra_bytes_per_s = 450e9,     -- 18 NVLink 4 links of 25 GB/s each way (datasheet: 900 GB/s both)
    host_memory_bytes = 2e12,      -- datasheet: 2 TB of system memory
    nics_per_node = 8,
    nic_bytes_per_s = 50e9,        -- ConnectX-7, NDR 400 Gbit/s
    oversubscription = 1.0,
    collective_launch_s = 8e-6,    -- one process a GPU, back to back: 6-10 us measured
    collective_ramp_s = 70e-6,     -- fitted to nccl-tests on 8 H200 (the same fabric): 70 us at 32 MiB
    collective_ramp_bytes = 32 * MiB,
    device = {
      name = "H100-SXM5-80GB", arch = "Hopper", sms = 132,
      memory_bytes = 84934656000,  -- 79.1 GiB: what the driver leaves of 80 GB
      -- context and kernels 0.5 GiB; two communicators of Ring (24 channels x 12 MiB) and NVLS
      -- buffers (256 MiB); cuBLAS workspace 32 MiB
      reserved_bytes = 512 * MiB + 2 * (288 + 256) * MiB + 32 * MiB,
      hbm_bytes_per_s = 3350e9,    -- datasheet; a copy reaches 2530e9 (75 %)
      peak_flops = { bf16 = 989.4e12, f16 = 989.4e12, f32 = 66.9e12, f64 = 66.9e12,
        e4m3 = 1978.9e12, e5m2 = 1978.9e12 },  -- dense; f64: tensor cores
      gemm_efficiency = 0.78,      -- fitted to 12.5k measured GEMMs (vidur), 9 % mean error
      memory_efficiency = 0.80,
      launch_s = 4e-6,             -- host side, a kernel from C
      kernel_floor_s = 5e-6,       -- t0 of the same fit
      usd_per_hour = 2.95,         -- median on-demand listing, May 2026
    },
  }
end
