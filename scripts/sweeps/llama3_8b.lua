-- Finds the fastest layout of Llama 3 8B on 16 GPUs whose peak memory is below 70 GiB: tandem sweep
-- scripts/sweeps/llama3_8b.lua
local GiB = 2 ^ 30

return sweep {
  plan = "plans/llama3_8b.lua",
  vary = {
    mesh = { dp_shard = { -1 }, tp = { 1, 2, 4 } },
    batch = { micro = { 1, 2 } },
    parallel = { ac = { "selective", "full" } },
  },
  where = function(s) return s.tp * s.micro <= 4 end,
  require = function(r)
    return r.peak_bytes < 70 * GiB, string.format("needs %.1f GiB", r.peak_bytes / GiB)
  end,
  score = { ["GPU hours per 1B tokens"] = function(r) return 1e9 / r.tokens_per_s_per_gpu / 3600 end },
}
