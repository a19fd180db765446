-- expect: error[ep-divides] non_pp_size=8 | ep_size=3
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", experts = 6, capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 3 },
}
