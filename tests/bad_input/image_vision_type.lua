-- A text is not a number.
return plan {
  model = require "models.qwen2_vl" { size = "tiny", vision = { dim = "16" } },
  cluster = require "clusters.local_cpu" {}, batch = { micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
