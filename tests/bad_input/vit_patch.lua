return plan {
  model = require "models.vit" { size = "tiny", patch = 0 },
  batch = { global = 4, seq = 1 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
