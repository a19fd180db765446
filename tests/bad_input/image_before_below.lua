-- The number of text tokens before the image must not be negative.
return plan {
  model = require "models.llava" { size = "tiny", before = -1 },
  cluster = require "clusters.local_cpu" {}, batch = { micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
