return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 }, mesh = { dp_shard = 2 },
  parallel = { zero { strategy = 1 } },
}
