-- expect: ok mesh dp_shard=2 ep=4 | experts 1 | parallel ep, ac(full), fsdp2(reshard) | equal
-- expect: note[dialect-differs] drops no token | capacity_factor
-- expect: note[dialect-differs] Automodel keeps what the router computed
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.mixtral" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 4, activation_checkpointing = true, moe = { reshard_after_forward = true } },
}
