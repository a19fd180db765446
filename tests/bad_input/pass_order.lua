return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  mesh = { dp_shard = 2, tp = 2 },
  parallel = { fsdp2 {}, tp {} },
}
