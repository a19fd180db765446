-- expect: ok mesh dp_shard=2 cp=2 tp=2 | experts 1 | equal
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2, cp_size = 2, ep_size = 4 },
}
