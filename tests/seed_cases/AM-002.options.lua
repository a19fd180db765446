-- expect: ok mesh dp_shard=4 ep=2 | parallel ep, ac(selective), fsdp2(keep) | equal
-- expect: no warning[dialect-differs]
-- expect: warning[not-applied] with ep_size > 1, distributed.moe decides on resharding
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "dropless" },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 2, activation_checkpointing = true, reshard_after_forward = true,
    moe = { activation_checkpointing_modules = { "attn" }, lm_head_precision = "bfloat16", wrap_outer_model = false } },
}
