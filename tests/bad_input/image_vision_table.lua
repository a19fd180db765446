-- The encoder is a table.
return plan {
  model = require "models.llava" { size = "tiny", vision = 3 },
  cluster = require "clusters.local_cpu" {}, batch = { micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
