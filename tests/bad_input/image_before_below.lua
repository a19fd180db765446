-- Not -1 tokens of the text are before the image.
return plan {
  model = require "models.llava" { size = "tiny", before = -1 },
  cluster = require "clusters.local_cpu" {}, batch = { micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
