return plan {
  model = require "models.gpt2" { size = "tiny", layers = 2 }, batch = { global = 8, seq = 32 },
  mesh = { pp = 2, dp_shard = 2 },
  parallel = { pp "1f1b", fsdp2 { offload = true } },
}
