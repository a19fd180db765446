-- NVIDIA HGX H200: 8 H200 SXM 141 GB on NVSwitch, 8 NICs of 400 Gbit/s.
local MiB = 1 << 20
return function(options)
  return {
    name = "hgx_h200",
    nodes = options.nodes or 1,
    devices_per_node = 8,
    intra = "nvswitch",
    intra_bytes_per_s = 450e9,     -- 18 NVLink 4 links of 25 GB/s each way (datasheet: 900 GB/s both)
    host_memory_bytes = 2e12,      -- a board alone says nothing: as DGX H200 has
    nics_per_node = 8,
    nic_bytes_per_s = 50e9,        -- ConnectX-7, NDR 400 Gbit/s
    oversubscription = 1.0,
    collective_launch_s = 8e-6,    -- one process a GPU, back to back: 6-10 us measured
    collective_ramp_s = 70e-6,     -- fitted to nccl-tests on 8 H200: 70 us at 32 MiB, 3.3 % mean error
    collective_ramp_bytes = 32 * MiB,
    device = {
      name = "H200-SXM-141GB", arch = "Hopper", sms = 132,
      memory_bytes = 143771 * MiB, -- as the driver reports it
      -- context and kernels 0.5 GiB; two communicators of Ring (24 channels x 12 MiB) and NVLS
      -- buffers (256 MiB); cuBLAS workspace 32 MiB
      reserved_bytes = 512 * MiB + 2 * (288 + 256) * MiB + 32 * MiB,
      hbm_bytes_per_s = 4800e9,    -- datasheet; a copy reaches 4300e9 (90 %)
      peak_flops = { bf16 = 989.4e12, f16 = 989.4e12, f32 = 66.9e12, f64 = 66.9e12,
        e4m3 = 1978.9e12, e5m2 = 1978.9e12 },  -- dense; f64: tensor cores
      gemm_efficiency = 0.78,      -- as the H100, whose chip it is
      memory_efficiency = 0.90,
      launch_s = 4e-6,             -- host side, a kernel from C
      kernel_floor_s = 5e-6,
      usd_per_hour = 4.00,         -- between 2.50 and 7.00, on-demand listings, May 2026
    },
  }
end
