return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  mesh = { dp_shard = 2, tp = 0.0 }, parallel = { tp {}, fsdp2 {} },
}
