-- The GPUs that the cluster library knows: their specifications, measurements and other names.
-- require "clusters.gpu" makes a cluster of any of them.
local _, core = ...
local fitted, fitted_kernels = require "tandem.fitted", require "tandem.fitted_kernels"
-- kind: documented; units
local MiB, GB = 1 << 20, 1e9

-- Numbers of each architecture.
-- gemm_efficiency: the fraction of the dense peak that large products reach. Ampere's and Hopper's
--   are in fitted_kernels. CDNA's and Ada's are assumed. Blackwell's comes from 1,610 TFLOP/s that
--   cuBLAS reaches for a product of 8192 x 8192 matrices on a B200. The time of the launch (5 us) and of
--   idle multiprocessors in the last of 14 waves of thread blocks was taken out.
-- memory_efficiency: the fraction of the nominal bandwidth that a kernel with much traffic reaches.
--   It was chosen by hand from dev-cal rows of published kernels.
-- sustained: the fraction of their rate in short measurements that large products keep in a long
--   run. Blackwell's is Hopper's. (SimuMax's machine sustained 1,100 TFLOP/s under a lower power
--   limit.)
-- light: the power of other kernels, as a fraction of the power of large products (fitted.lua).
-- kernel_floor_s: the device's time for an empty kernel, in seconds.
-- block_scales: products multiply 8-bit blocks with a scale for each block (MXFP8), as fast as
--   other 8-bit numbers.
-- nvfp4: products multiply 4-bit numbers in blocks of 16 with e4m3 scales, at the rate `fp4`.
--   (CDNA4's 4-bit products have blocks of 32 and scales that are powers of two.)
-- kind: assumed; by hand from dev-cal rows of published kernels, or the related architecture's
local arch = {
  Volta = { gemm_efficiency = 0.75, memory_efficiency = 0.83, kernel_floor_s = 3e-6 },
  Ampere = { memory_efficiency = 0.78, kernel_floor_s = 3e-6 },
  Ada = { gemm_efficiency = 0.75, memory_efficiency = 0.85, kernel_floor_s = 3e-6 },
  Hopper = { memory_efficiency = 0.80, kernel_floor_s = 5e-6 },
  Blackwell = { gemm_efficiency = 0.73, memory_efficiency = 0.80, kernel_floor_s = 5e-6, sustained = fitted.sustained.Hopper, light = fitted.light.Hopper, block_scales = true, nvfp4 = true },
  -- The sustained fraction of CDNA was never fitted. Hopper's is used, because both chips take about as much
  -- power. CDNA2 has CDNA3's numbers.
  CDNA2 = { gemm_efficiency = 0.50, memory_efficiency = 0.72, kernel_floor_s = 8e-6, sustained = fitted.sustained.Hopper, light = fitted.light.Hopper },
  CDNA3 = { gemm_efficiency = 0.50, memory_efficiency = 0.72, kernel_floor_s = 8e-6, sustained = fitted.sustained.Hopper, light = fitted.light.Hopper },
  CDNA4 = { gemm_efficiency = 0.60, memory_efficiency = 0.72, kernel_floor_s = 8e-6, sustained = fitted.sustained.Hopper, light = fitted.light.Hopper, block_scales = true },
}

-- memory: the MiB that the driver reports
-- hbm: the memory's nominal bandwidth in GB/s
-- mem: the measured fraction of hbm, if it is known; otherwise the architecture's memory_efficiency
--   counts
-- bf16, fp8, fp4, fp32: dense TFLOP/s
-- link, pcie: GB/s in each direction; link is NVLink or xGMI
-- watts: the usual power limit
-- chip: a related GPU with the same multiprocessors, from whose sustained fraction this GPU's is
--   computed
-- fit: the key of the GPU's sustained fraction in fitted.lua, if it is not the architecture
-- exps: the number of exponentials that a multiprocessor computes in a clock cycle (16 if left out)
-- kind: datasheet; the maker's page of each GPU; memory as its driver prints it
local gpus = {
  ["V100-SXM2-32GB"] = { arch = "Volta", sms = 80, memory = 32510, hbm = 900, fp16 = 125, fp32 = 15.7, link = 150, pcie = 15.75, watts = 300 },
  ["V100-SXM2-16GB"] = { arch = "Volta", chip = "V100-SXM2-32GB", sms = 80, memory = 16160, hbm = 900, fp16 = 125, fp32 = 15.7, link = 150, pcie = 15.75, watts = 300 },
  ["V100-PCIe-32GB"] = { arch = "Volta", chip = "V100-SXM2-32GB", sms = 80, memory = 32510, hbm = 900, fp16 = 112, fp32 = 14, pcie = 15.75, watts = 250 },
  ["V100-PCIe-16GB"] = { arch = "Volta", chip = "V100-SXM2-32GB", sms = 80, memory = 16160, hbm = 900, fp16 = 112, fp32 = 14, pcie = 15.75, watts = 250 },
  -- Turing is planned as Volta: its multiprocessors, too, lack bf16 and asynchronous copies.
  ["T4-16GB"] = { arch = "Volta", sms = 40, memory = 15360, hbm = 320, fp16 = 65, fp32 = 8.1, pcie = 15.75, watts = 70 },
  ["A10G"] = { arch = "Ampere", sms = 80, memory = 22731, hbm = 600, bf16 = 70, fp32 = 35, pcie = 31.5, watts = 300 },
  ["A30-24GB"] = { arch = "Ampere", chip = "A100-SXM4-80GB", sms = 56, memory = 24258, hbm = 933, bf16 = 165, fp32 = 10.3, pcie = 31.5, watts = 165 },
  ["A5000-24GB"] = { arch = "Ampere", sms = 64, memory = 24564, hbm = 768, bf16 = 111.1, fp32 = 27.8, pcie = 31.5, watts = 230 },
  ["A10"] = { arch = "Ampere", sms = 72, memory = 22731, hbm = 600, bf16 = 125, fp32 = 31.2, pcie = 31.5, watts = 150 },
  ["A40-48GB"] = { arch = "Ampere", sms = 84, memory = 46068, hbm = 696, bf16 = 149.7, fp32 = 37.4, pcie = 31.5, watts = 300 },
  ["A6000-48GB"] = { arch = "Ampere", sms = 84, memory = 49140, hbm = 768, bf16 = 154.8, fp32 = 38.7, pcie = 31.5, watts = 300 },
  ["RTX3090-24GB"] = { arch = "Ampere", sms = 82, memory = 24576, hbm = 936, bf16 = 71, fp32 = 35.6, pcie = 31.5, watts = 350 },
  ["A100-SXM4-40GB"] = { arch = "Ampere", chip = "A100-SXM4-80GB", sms = 108, memory = 40536, hbm = 1555, bf16 = 312, fp32 = 19.5, link = 300, pcie = 31.5, watts = 400 },
  ["A100-SXM4-80GB"] = { arch = "Ampere", sms = 108, memory = 81051, hbm = 2039, bf16 = 312, fp32 = 19.5, link = 300, pcie = 31.5, watts = 400 },
  ["A800-SXM4-80GB"] = { arch = "Ampere", chip = "A100-SXM4-80GB", sms = 108, memory = 81051, hbm = 2039, bf16 = 312, fp32 = 19.5, link = 200, pcie = 31.5, watts = 400 },
  ["A100-PCIe-40GB"] = { arch = "Ampere", chip = "A100-SXM4-80GB", sms = 108, memory = 40536, hbm = 1555, bf16 = 312, fp32 = 19.5, pcie = 31.5, watts = 250 },
  ["A100-PCIe-80GB"] = { arch = "Ampere", chip = "A100-SXM4-80GB", sms = 108, memory = 81051, hbm = 1935, bf16 = 312, fp32 = 19.5, pcie = 31.5, watts = 300 },
  ["H100-SXM5-80GB"] = { arch = "Hopper", sms = 132, memory = 81000, hbm = 3350, bf16 = 989.4, fp8 = 1978.9, fp32 = 66.9, link = 450, pcie = 63, watts = 700 },
  -- Meta's Grand Teton: HBM2e and a lower power limit. torchtitan's benchmarks state both.
  ["H100-SXM5-96GB-HBM2e"] = { arch = "Hopper", fit = "H100_at_500_W", sms = 132, memory = 97277, hbm = 2400, bf16 = 989.4, fp8 = 1978.9, fp32 = 66.9, link = 450, pcie = 63, watts = 500 },
  ["H100-PCIe-80GB"] = { arch = "Hopper", chip = "H100-SXM5-80GB", sms = 114, memory = 81000, hbm = 2000, bf16 = 756, fp8 = 1513, fp32 = 51.2, pcie = 63, watts = 350 },
  ["H100-NVL-94GB"] = { arch = "Hopper", chip = "H100-SXM5-80GB", sms = 132, memory = 95320, hbm = 3900, bf16 = 835, fp8 = 1671, fp32 = 60, pcie = 63, watts = 400 },
  ["H200-SXM-141GB"] = { arch = "Hopper", chip = "H100-SXM5-80GB", sms = 132, memory = 143771, hbm = 4800, bf16 = 989.4, fp8 = 1978.9, fp32 = 66.9, link = 450, pcie = 63, watts = 700, mem = 0.90 },
  ["H200-NVL-141GB"] = { arch = "Hopper", chip = "H100-SXM5-80GB", sms = 132, memory = 143771, hbm = 4800, bf16 = 835, fp8 = 1671, fp32 = 60, pcie = 63, watts = 600, mem = 0.90 },
  ["H800-SXM-80GB"] = { arch = "Hopper", chip = "H100-SXM5-80GB", sms = 132, memory = 81000, hbm = 3350, bf16 = 989.4, fp8 = 1978.9, fp32 = 66.9, link = 200, pcie = 63, watts = 700 },
  ["H20-96GB"] = { arch = "Hopper", chip = "H100-SXM5-80GB", sms = 78, memory = 97871, hbm = 4000, bf16 = 148, fp8 = 296, fp32 = 44, link = 450, pcie = 63, watts = 400 },
  ["GH200-96GB"] = { arch = "Hopper", sms = 132, memory = 97280, hbm = 4000, bf16 = 989.4, fp8 = 1978.9, fp32 = 66.9, link = 450, pcie = 450, watts = 900 },
  ["GH200-144GB"] = { arch = "Hopper", sms = 132, memory = 145920, hbm = 4900, bf16 = 989.4, fp8 = 1978.9, fp32 = 66.9, link = 450, pcie = 450, watts = 900 },
  ["B200-SXM-180GB"] = { arch = "Blackwell", sms = 148, memory = 183359, hbm = 8000, bf16 = 2250, fp8 = 4500, fp4 = 9000, fp32 = 80, link = 900, pcie = 63, watts = 1000 },
  ["B300-SXM-288GB"] = { arch = "Blackwell", chip = "B200-SXM-180GB", sms = 148, memory = 275040, hbm = 8000, bf16 = 2250, fp8 = 4500, fp32 = 80, exps = 32, link = 900, pcie = 121, watts = 1300 },
  ["GB200-186GB"] = { arch = "Blackwell", chip = "B200-SXM-180GB", sms = 152, memory = 189471, hbm = 8000, bf16 = 2500, fp8 = 5000, fp4 = 10000, fp32 = 80, link = 900, pcie = 450, watts = 1200 },
  ["GB300-279GB"] = { arch = "Blackwell", chip = "B200-SXM-180GB", sms = 152, memory = 284208, hbm = 8000, bf16 = 2500, fp8 = 5000, fp4 = 15000, fp32 = 80, exps = 32, link = 900, pcie = 450, watts = 1400 },
  ["L4-24GB"] = { arch = "Ada", sms = 58, memory = 23034, hbm = 300, bf16 = 121, fp8 = 242, fp32 = 30.3, pcie = 31.5, watts = 72 },
  ["L20-48GB"] = { arch = "Ada", sms = 92, memory = 46068, hbm = 864, bf16 = 119.5, fp8 = 239, fp32 = 59.8, pcie = 31.5, watts = 275 },
  ["RTX6000Ada-48GB"] = { arch = "Ada", sms = 142, memory = 49140, hbm = 960, bf16 = 364.2, fp8 = 728.5, fp32 = 91.1, pcie = 31.5, watts = 300 },
  ["L40-48GB"] = { arch = "Ada", sms = 142, memory = 46068, hbm = 864, bf16 = 181, fp8 = 362, fp32 = 90.5, pcie = 31.5, watts = 300 },
  ["L40S-48GB"] = { arch = "Ada", sms = 142, memory = 46068, hbm = 864, bf16 = 362, fp8 = 733, fp32 = 91.6, pcie = 31.5, watts = 350 },
  ["RTX4090-24GB"] = { arch = "Ada", sms = 128, memory = 24564, hbm = 1008, bf16 = 165.2, fp8 = 330.3, fp32 = 82.6, pcie = 31.5, watts = 450 },
  -- Blackwell GPUs for graphics are planned as Ada: they lack B200's tensor memory, so they run the
  -- kernels written for Ada.
  ["RTX5090-32GB"] = { arch = "Ada", sms = 170, memory = 32607, hbm = 1792, bf16 = 209.5, fp8 = 419, fp32 = 104.8, pcie = 63, watts = 575 },
  -- The Server Edition has slower memory. The Max-Q has half the power, and its peaks are scaled by
  -- 3,511 / 4,000, the ratio of the TOPS that NVIDIA states for 4 bits.
  ["RTXPRO6000-Server-96GB"] = { arch = "Ada", sms = 188, memory = 97887, hbm = 1597, bf16 = 503.8, fp8 = 1007.6, fp32 = 126, pcie = 63, watts = 600 },
  ["RTXPRO6000-MaxQ-96GB"] = { arch = "Ada", chip = "RTXPRO6000-96GB", sms = 188, memory = 97887, hbm = 1792, bf16 = 442.2, fp8 = 884.4, fp32 = 110.6, pcie = 63, watts = 300 },
  ["RTXPRO6000-96GB"] = { arch = "Ada", sms = 188, memory = 97887, hbm = 1792, bf16 = 503.8, fp8 = 1007.6, fp32 = 126, pcie = 63, watts = 600 },
  -- A device is one of the two dies of a board, and has half of the board's power limit.
  ["MI250X-64GB"] = { arch = "CDNA2", sms = 110, memory = 65520, hbm = 1638, bf16 = 191.5, fp32 = 47.9, link = 150, pcie = 31.5, watts = 280 },
  ["MI250-64GB"] = { arch = "CDNA2", sms = 104, memory = 65520, hbm = 1638, bf16 = 181, fp32 = 45.3, link = 150, pcie = 31.5, watts = 280 },
  ["MI210-64GB"] = { arch = "CDNA2", sms = 104, memory = 65520, hbm = 1638, bf16 = 181, fp32 = 45.3, pcie = 31.5, watts = 300 },
  ["MI300X-192GB"] = { arch = "CDNA3", sms = 304, memory = 196592, hbm = 5300, bf16 = 1307.4, fp8 = 2614.9, fp32 = 163.4, link = 448, pcie = 63, watts = 750 },
  ["MI325X-256GB"] = { arch = "CDNA3", chip = "MI300X-192GB", sms = 304, memory = 262128, hbm = 6000, bf16 = 1307.4, fp8 = 2614.9, fp32 = 163.4, link = 448, pcie = 63, watts = 1000 },
  ["MI350X-288GB"] = { arch = "CDNA4", chip = "MI355X-288GB", sms = 256, memory = 294896, hbm = 8000, bf16 = 2309.6, fp8 = 4614, fp4 = 9200, fp32 = 144.2, link = 535, pcie = 63, watts = 1000 },
  ["MI355X-288GB"] = { arch = "CDNA4", sms = 256, memory = 294896, hbm = 8000, bf16 = 2516.6, fp8 = 5000, fp4 = 10100, fp32 = 157.3, link = 535, pcie = 63, watts = 1400 },
}

-- B300's 4-bit peak is assumed: it lies between the peaks of B200 and
-- GB300.
-- kind: assumed; from related GPUs
local assumed = {
  ["B300-SXM-288GB"] = { fp4 = 12600 },
}
for name, more in pairs(assumed) do
  for key, value in pairs(more) do gpus[name][key] = value end
end

-- Patterns of GPU names in published sources and in drivers, in upper case. The first match counts.
-- false: a GPU that the library lacks, although its name contains the name of a known GPU.
local aliases = {
  { "%f[%a]MIG%f[%A]", false }, { "RTX PRO 6000.*SERVER", "RTXPRO6000-Server-96GB" }, { "RTX PRO 6000.*MAX%-?Q", "RTXPRO6000-MaxQ-96GB" }, { "RTX PRO 6000", "RTXPRO6000-96GB" }, { "RTX PRO", false }, { "RTX.*BLACKWELL", false }, { "RTX A[12]000", false }, { "A4[05]00", false }, { "GB10%f[%D]", false }, { "V100S", false },
  { "MI300A", false }, { "MI308", false }, { "H100.*CNX", false },
  { "H100.*96GB", "H100-SXM5-96GB-HBM2e" }, { "H100.*META", "H100-SXM5-96GB-HBM2e" },
  { "H100.*PCIE", "H100-PCIe-80GB" }, { "H100.*NVL[%s%-]?94", "H100-NVL-94GB" }, { "H100[%s%-]NVL%f[%W]", "H100-NVL-94GB" }, { "H100", "H100-SXM5-80GB" },
  { "GH200.*14[14]", "GH200-144GB" }, { "GH200", "GH200-96GB" }, { "H200.*NVL%f[%W]", "H200-NVL-141GB" }, { "H200", "H200-SXM-141GB" }, { "H800.*PCIE", "H100-PCIe-80GB" }, { "H800", "H800-SXM-80GB" }, { "H20", "H20-96GB" },
  { "A100.*PCIE.*%f[%d]40%s?GB", "A100-PCIe-40GB" }, { "A100.*%f[%d]40%s?GB.*PCIE", "A100-PCIe-40GB" }, { "A100.*PCIE", "A100-PCIe-80GB" }, { "A100.*%f[%d]40GB", "A100-SXM4-40GB" }, { "A100.*320%s?GB", "A100-SXM4-40GB" }, { "A100[%s%-_]40%f[%D]", "A100-SXM4-40GB" }, { "A100", "A100-SXM4-80GB" }, { "A10G", "A10G" }, { "A10", "A10" },
  { "A800.*PCIE", "A100-PCIe-80GB" }, { "A800", "A800-SXM4-80GB" }, { "A40", "A40-48GB" }, { "6000.*ADA", "RTX6000Ada-48GB" }, { "A6000", "A6000-48GB" }, { "A5000", "A5000-24GB" }, { "A30%f[%W]", "A30-24GB" }, { "%f[%d]3090%f[%D]", "RTX3090-24GB" },
  { "GB300", "GB300-279GB" }, { "B300", "B300-SXM-288GB" }, { "GB200", "GB200-186GB" }, { "B200", "B200-SXM-180GB" },
  { "V100.*PCIE.*16%s?GB", "V100-PCIe-16GB" }, { "V100.*PCIE", "V100-PCIe-32GB" }, { "V100.*16%s?GB", "V100-SXM2-16GB" }, { "V100.*128%s?GB", "V100-SXM2-16GB" }, { "V100", "V100-SXM2-32GB" }, { "L20%f[%W]", "L20-48GB" }, { "L40S", "L40S-48GB" }, { "L40", "L40-48GB" }, { "L4", "L4-24GB" }, { "%f[%d]4090%f[%D]", "RTX4090-24GB" }, { "%f[%d]5090%f[%D]", "RTX5090-32GB" },
  { "%f[%a]T4%f[^%w]", "T4-16GB" }, { "MI250X", "MI250X-64GB" }, { "MI250", "MI250-64GB" }, { "MI210", "MI210-64GB" },
  { "MI300", "MI300X-192GB" }, { "MI325", "MI325X-256GB" }, { "MI350", "MI350X-288GB" }, { "MI355", "MI355X-288GB" },
  { "BLACKWELL ULTRA", "B300-SXM-288GB" }, { "BLACKWELL", "B200-SXM-180GB" }, { "HOPPER", "H100-SXM5-80GB" },
}

local m = { gpus = gpus, arch = arch }

-- Returns the library's name for the GPU that a published source or a driver calls `name`, or nil
-- if it is unknown. Any text that contains a known name is accepted, with other words around it.
-- For a name that a user writes, call m.known instead.
function m.find(name)
  if gpus[name] then return name end
  local text = name:upper():gsub("GIB", "GB"):gsub("(%d)%s+GB", "%1GB"):gsub("(%d)G%f[%W]", "%1GB"):gsub("PCI%-E", "PCIE")
  for _, alias in ipairs(aliases) do
    if text:find(alias[1]) then return alias[2] or nil end
  end
  return nil
end

-- Splits a name into its parts, in upper case and without the generation of the socket:
-- "H100-SXM5-80GB" gives H100, SXM, 80GB.
local function parts(name)
  local list = {}
  for part in name:upper():gmatch "[^%s%-]+" do list[#list + 1] = part:match "^SXM%d$" and "SXM" or part end
  return list
end

-- Returns true if `name` abbreviates `key`, the library's name of a GPU. `name` has the first part
-- of the key, then any of its other parts in order: "h200", "A100-40GB", "RTX 4090". The end of the
-- first part alone is also enough: "4090". A misspelt name fails, because the key lacks one of its
-- parts.
local function abbreviates(name, key)
  local given, own, at = parts(name), parts(key), 0
  local joined = table.concat(given)
  if #given > 0 and own[1]:sub(-#joined) == joined then return true end
  for i, part in ipairs(given) do
    repeat at = at + 1 until own[at] == nil or own[at] == part
    if own[at] == nil or (i == 1 and at ~= 1) then return false end
  end
  return #given > 0
end

-- Returns the library's name for the GPU that a user calls `name`, which is a library's name or a
-- part of one. If there is none, returns nil and a hint.
function m.known(name)
  local of_upper, all, short = {}, {}, {}
  for key in pairs(gpus) do
    local first = key:match "^[^%-]+"
    if not of_upper[first:upper()] then short[#short + 1] = first end
    of_upper[first:upper()], of_upper[key:upper()] = first, key
  end
  local found = gpus[of_upper[name:upper()]] and of_upper[name:upper()] or m.find(name)
  if found and abbreviates(name, found) then return found end
  for word in pairs(of_upper) do all[#all + 1] = word end
  local near = core.nearest(name:upper(), all)
  return nil, near and ("did you mean '%s'?"):format(of_upper[near]) or "GPUs are " .. table.concat(short, ", ")
end

-- Like m.known, but raises an error if the name is unknown.
function m.named(name)
  if type(name) ~= "string" then
    core.fail("wrong-type", ("clusters.gpu: gpu must be a text, not a %s"):format(type(name)))
  end
  local found, hint = m.known(name)
  if not found then core.fail("unknown-word", ("clusters.gpu: the library has no GPU called '%s'"):format(name), hint) end
  return found
end

-- Returns the time that the usual CPU of a system with this GPU needs to launch an op, relative to an 8480C (the CPU of a DGX H100).
function m.host_factor(name)
  if name:find "^G[BH]%d" then return fitted.hosts.grace end
  return gpus[name].arch == "Ampere" and fitted.hosts.epyc_7742 or 1
end

-- The part of a busy GPU's power that does not depend on its clock, as a fraction of its usual
-- limit. An idle H100 draws some 70 of 700 W, an idle A100 some 55 of 400 W: about a tenth. The
-- other 0.05 are assumed for the memory traffic of products.
-- kind: assumed; as the line above says
local still_part <const> = 0.15

-- Returns the fraction of the peak's clock that large products keep under a power limit of `watts`
-- (sim/compute/power.c). It starts from this fraction for the related GPU `chip` under its usual
-- limit. Each GPU draws a constant power, proportional to the number of multiprocessors, and the
-- power of switching, proportional to that number times the cube of the clock. `faster` is the
-- ratio of the two clocks at their peaks.
local function sustained(g, watts)
  local chip = gpus[g.chip] or g
  local part = fitted.sustained[chip.fit or g.arch] or arch[g.arch].sustained or 0.9
  local more, faster = g.sms / chip.sms, (g.bf16 or g.fp16) / (chip.bf16 or chip.fp16) / (g.sms / chip.sms)
  local still = still_part * chip.watts
  local switching = math.max(watts - still * more, 0.05 * watts) / (more * faster ^ 3)
  return math.min(1, part * (switching / (chip.watts - still)) ^ (1 / 3))
end

-- Returns the table cluster.device for the library's name of a GPU. watts: its power limit; nil:
-- the usual one.
function m.device(name, watts)
  local g = gpus[name]
  local a = arch[g.arch]
  if watts and not (type(watts) == "number" and watts > 0 and watts <= 2 * g.watts) then
    error(("watts = %s must be a number up to %d, twice the usual limit of a %s"):format(tostring(watts), 2 * g.watts, name), 3)
  end
  local half = (g.bf16 or g.fp16) * 1e12
  local fp8 = g.fp8 and g.fp8 * 1e12 or nil
  local fabric = g.arch == "Hopper" or g.arch == "Blackwell"
  return {
    name = name, arch = g.arch, sms = g.sms,
    memory_bytes = g.memory * MiB,
    -- 0.5 GiB for the context and the kernels, and cuBLAS's workspace. The memory of communicators
    -- is computed from the plan (sim/memory/comm_memory.c).
    reserved_bytes = 512 * MiB + (fabric and 32 * MiB or 8519680),
    hbm_bytes_per_s = g.hbm * GB,
    peak_flops = { bf16 = g.bf16 and half or nil, f16 = half, f32 = g.fp32 * 1e12, f64 = g.fp32 * 0.5e12,
      e4m3 = fp8, e5m2 = fp8, e8m0 = a.block_scales and fp8 or nil,
      e2m1x2 = a.nvfp4 and g.fp4 and g.fp4 * 1e12 or nil },
    block_scales = a.block_scales,
    gemm_efficiency = (fitted_kernels[g.arch] or a).gemm_efficiency, memory_efficiency = g.mem or a.memory_efficiency,
    exponentials = g.exps, launch_s = 4e-6, kernel_floor_s = a.kernel_floor_s, watts = watts or g.watts,
    sustained = sustained(g, watts or g.watts), light_power = fitted.light[g.fit or g.arch] or a.light,
  }
end

return m
