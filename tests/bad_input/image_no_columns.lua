-- The model's own checks name its keys.
return plan {
  model = require "models.qwen2_vl" { size = "tiny", columns = 0 },
  cluster = require "clusters.local_cpu" {}, batch = { micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
