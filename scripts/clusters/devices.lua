-- Devices by name: dense rates of the data sheets; memory is what the driver leaves, or .99 of the nominal GiB
-- where that is not known. Efficiencies are those of the generation: fitted to measured GEMMs and copies on A100
-- and H100, else what the largest measured product reaches.
local MiB, GiB = 1 << 20, 1 << 30

-- name = { arch, sms, memory, hbm GB/s, bf16, fp16, fp8, fp32 TFLOP/s, fp64 TFLOP/s, GB/s to the host, USD/h }
local parts = {
  ["V100-SXM2-32GB"] = { "Volta", 80, 32 * GiB * 99 // 100, 900, 0, 125, 0, 15.7, 7.8, 13.7025, 1.6 },
  ["A10"] = { "Ampere-GA102", 72, 24 * GiB * 99 // 100, 600, 125, 125, 0, 31.2, 0.5, 27, 0.95 },
  ["A100-SXM4-40GB"] = { "Ampere", 108, 40 * GiB * 99 // 100, 1555, 312, 312, 0, 19.5, 19.5, 27, 1.125 },
  -- 79.15 GiB
  ["A100-SXM4-80GB"] = { "Ampere", 108, 84987740160, 2039, 312, 312, 0, 19.5, 19.5, 27, 1.64 },
  ["A100-PCIe-80GB"] = { "Ampere", 108, 80 * GiB * 99 // 100, 1935, 312, 312, 0, 19.5, 19.5, 27, 1.65 },
  -- 79.1 GiB
  ["H100-SXM5-80GB"] = { "Hopper", 132, 84934656000, 3350, 989.4, 989.4, 1978.9, 66.9, 66.9, 55.4, 2.95 },
  ["H100-PCIe-80GB"] = { "Hopper", 114, 80 * GiB * 99 // 100, 2000, 756, 756, 1513, 51.2, 66.9, 55.4, 2.65 },
  ["H100-NVL-94GB"] = { "Hopper", 132, 94 * GiB * 99 // 100, 3900, 835, 835, 1671, 60, 66.9, 55.4, 3.25 },
  ["H200-SXM-141GB"] = { "Hopper", 132, 143771 * MiB, 4800, 989.4, 989.4, 1978.9, 66.9, 66.9, 55.4, 4.00 },
  ["H800-SXM-80GB"] = { "Hopper", 132, 80 * GiB * 99 // 100, 3350, 989.4, 989.4, 1978.9, 66.9, 1, 55.4, 0 },
  ["H20-96GB"] = { "Hopper", 78, 96 * GiB * 99 // 100, 4000, 148, 148, 296, 44, 1, 55.4, 0 },
  ["GH200-96GB"] = { "Hopper", 132, 96 * GiB * 99 // 100, 4000, 989.4, 989.4, 1978.9, 66.9, 66.9, 55.4, 0 },
  ["B200-SXM-180GB"] = { "Blackwell", 148, 180 * GiB * 99 // 100, 8000, 2250, 2250, 4500, 80, 40, 55.4, 6.5 },
  ["B300-SXM-288GB"] = { "Blackwell-Ultra", 148, 288 * GiB * 99 // 100, 8000, 2250, 2250, 4500, 80, 1.3, 106, 9 },
  ["GB200-186GB"] = { "Blackwell", 152, 186 * GiB * 99 // 100, 8000, 2500, 2500, 5000, 80, 40, 106, 9 },
  ["GB300-279GB"] = { "Blackwell-Ultra", 152, 279 * GiB * 99 // 100, 8000, 2500, 2500, 5000, 80, 1.3, 106, 10.5 },
  ["L40S-48GB"] = { "Ada", 142, 48 * GiB * 99 // 100, 864, 362, 362, 733, 91.6, 1.4, 27, 1.35 },
  ["RTX4090-24GB"] = { "Ada", 128, 24 * GiB * 99 // 100, 1008, 165.2, 165.2, 330.3, 82.6, 1.3, 27, 0.55 },
  ["MI300X-192GB"] = { "CDNA3", 304, 192 * GiB * 99 // 100, 5300, 1307.4, 1307.4, 2614.9, 163.4, 163.4, 55.4, 3.85 },
  ["MI325X-256GB"] = { "CDNA3", 304, 256 * GiB * 99 // 100, 6000, 1307.4, 1307.4, 2614.9, 163.4, 163.4, 55.4, 4.5 },
  ["MI355X-288GB"] = { "CDNA4", 256, 288 * GiB * 99 // 100, 8000, 2516.6, 2516.6, 5000, 157.3, 78.6, 55.4, 5.75 },
}

-- arch = { GEMM efficiency, part of the memory bandwidth, time of an empty kernel us, MiB kept by communicators }
-- Communicators: two, each of rings (24 channels x 12 MiB; Blackwell 32) and the switch's buffers (256 MiB).
local generations = {
  Volta = { .75, .80, 5, 2 * 144 }, ["Ampere-GA102"] = { .75, .78, 3, 2 * 24 }, Ampere = { .80, .78, 3, 2 * 288 },
  Ada = { .75, .80, 3, 2 * 24 }, Hopper = { .78, .80, 5, 2 * (288 + 256) }, Blackwell = { .74, .80, 5, 2 * (384 + 384) },
  ["Blackwell-Ultra"] = { .74, .80, 5, 2 * (384 + 384) }, CDNA3 = { .55, .75, 5, 2 * 288 }, CDNA4 = { .60, .75, 5, 2 * 288 },
}
local copies = { ["H200-SXM-141GB"] = .90, ["GB200-186GB"] = .72 } -- measured: 4.3 of 4.8, 5.75 of 8 TB/s

return function(name)
  local p = parts[name]
  if p == nil then error("clusters.devices knows no device '" .. tostring(name) .. "'") end
  local g, recent = generations[p[1]], p[1] == "Hopper" or p[1]:sub(1, 9) == "Blackwell"
  local T = 1e12
  return {
    name = name, arch = p[1], sms = p[2], memory_bytes = p[3],
    -- context and kernels 0.5 GiB, communicators, cuBLAS' workspace
    reserved_bytes = 512 * MiB + g[4] * MiB + (recent and 32 * MiB or 8519680),
    hbm_bytes_per_s = p[4] * 1e9,
    peak_flops = { bf16 = p[5] * T, f16 = p[6] * T, e4m3 = p[7] * T, e5m2 = p[7] * T, f32 = p[8] * T, f64 = p[9] * T },
    gemm_efficiency = g[1], memory_efficiency = copies[name] or g[2],
    launch_s = 4e-6,               -- host side, a kernel from C
    kernel_floor_s = g[3] * 1e-6,
    usd_per_hour = p[11],          -- middle of on-demand listings, May 2026; 0: none seen
  }, p[10] * 1e9
end
