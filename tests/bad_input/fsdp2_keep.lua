return plan {
  model = require "models.llama" "tiny", batch = { global = 8, seq = 64 }, mesh = { dp_shard = 8 },
  parallel = { fsdp2 { reshard_after_forward = 4, keep_gathered = true } },
}
