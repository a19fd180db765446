return plan {
  model = require "models.llava" { size = "tiny", vision = { patch = 0 } },
  batch = { global = 4, seq = 40 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
