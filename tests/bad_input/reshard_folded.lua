return plan {
  model = require "models.mixtral" { size = "tiny", layers = 1 }, batch = { global = 8, micro = 1, seq = 32 },
  mesh = { dp_shard = 8, ep = 4, ep_mode = "folded" },
  parallel = { ep {}, fsdp2 { reshard_after_forward = 4 } },
}
