return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 }, mesh = { dp_replicate = 2 },
  parallel = { zero { strategy = "no_shard", units = { "layers.*" } } },
}
