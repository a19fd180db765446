return plan {
  model = require "models.gpt2" { size = "tiny", layers = 2 }, batch = { global = 8, seq = 32 },
  mesh = { dp_shard = 2 },
  parallel = { fsdp2 { offload = { optimizer = true } } },
}
