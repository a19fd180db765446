-- expect: ok mesh dp_shard=2 tp=2 | weights 10 | local layers.0.feed_forward.w1.weight 4,64,32 | local layers.0.attention.wq.weight 64,1,2,16 | equal
-- The base plan names no experts: every rank of tp computes all of them.
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2 },
}
