return plan {
  model = require "models.llama" "tiny", batch = { global = 8, seq = 64 },
  mesh = { dp_shard = 2, domain = 2 }, parallel = { fsdp2 {} },
}
