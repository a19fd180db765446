-- The image is behind the first tokens of the text, not behind all of them.
return plan {
  model = require "models.qwen2_vl" { size = "tiny", before = 16 },
  cluster = require "clusters.local_cpu" {}, batch = { micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
