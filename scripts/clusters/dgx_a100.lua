-- NVIDIA DGX A100: 8 A100 SXM4 80 GB on NVSwitch, 8 NICs of 200 Gbit/s.
local MiB = 1 << 20
return function(options)
  return {
    name = "dgx_a100",
    nodes = options.nodes or 1,
    devices_per_node = 8,
    intra = "nvswitch",
    intra_bytes_per_s = 300e9,     -- 12 NVLink 3 links of 25 GB/s each way (datasheet: 600 GB/s both)
    host_link_bytes_per_s = 27e9,  -- PCIe 4 x16: 31.5 GB/s, of which a copy reaches about 0.87
    host_bytes_per_s = 36e9,       -- 2 x 8 channels of DDR4-3200, 410 GB/s, 0.7 of an eighth
    host_memory_bytes = 2e12,      -- datasheet: 2 TB of system memory (80 GB devices)
    nics_per_node = 8,
    nic_bytes_per_s = 25e9,        -- ConnectX-6, HDR 200 Gbit/s
    oversubscription = 1.0,
    collective_launch_s = 8e-6,    -- one process a GPU, back to back: 6-10 us measured
    collective_ramp_s = 40e-6,     -- fitted to nccl-tests on 8 A100: 40 us at 4 MiB, 3.3 % mean error
    collective_ramp_bytes = 4 * MiB,
    device = {
      name = "A100-SXM4-80GB", arch = "Ampere", sms = 108,
      memory_bytes = 84987740160,  -- 79.15 GiB: what the driver leaves of 80 GB
      -- context and kernels 0.5 GiB; two communicators of Ring (24 channels x 12 MiB); cuBLAS 8.125 MiB
      reserved_bytes = 512 * MiB + 2 * 288 * MiB + 8519680,
      hbm_bytes_per_s = 2039e9,    -- datasheet; a copy reaches 1581e9 (78 %)
      peak_flops = { bf16 = 312e12, f16 = 312e12, f32 = 19.5e12, f64 = 19.5e12 },  -- dense
      gemm_efficiency = 0.80,      -- fitted to 12.5k measured GEMMs (vidur), 8 % mean error
      memory_efficiency = 0.78,
      launch_s = 4e-6,             -- host side, a kernel from C
      kernel_floor_s = 3e-6,       -- t0 of the same fit
      usd_per_hour = 1.64,         -- on-demand listing, May 2026
    },
  }
end
