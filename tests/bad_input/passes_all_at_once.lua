-- Each pass has a mistake of its own, and all are reported, not only the first.
return plan {
  model = require "models.llama" { size = "tiny", layers = 4, heads = 6, kv_heads = 6, dim = 96 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 16, micro = 2, seq = 62 },
  mesh = { pp = 3, dp_shard = 2, tp = 4 },
  parallel = {
    meta {},
    pp { schedule = "interleaved_1f1b", chunks = 2, cap = 1 },
    tp { sequence = true, plan = { ["layers.*.nothing"] = "colwise" } },
    float8 { skip = { "zip" } },
    ac { modules = { "none.*" } },
    compile "model",
    fsdp2 { reshard_after_forward = 3, units = { "zap" } },
  },
}
