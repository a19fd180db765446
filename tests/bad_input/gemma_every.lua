return plan {
  model = require "models.gemma" { size = "3-tiny", every = 0 },
  batch = { global = 4, seq = 32 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
}
