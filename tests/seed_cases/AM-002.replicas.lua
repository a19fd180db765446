-- expect: ok mesh ep=8 | experts 1 | equal
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", experts = 8, capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { dp_replicate_size = 2, ep_size = 8 },
}
