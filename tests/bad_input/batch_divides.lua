return plan {
  model = require "models.llama" "tiny",
  batch = { global = 64, micro = 2, seq = 32 },
  mesh = { dp_shard = 3 },
  parallel = { fsdp2 {} },
}
