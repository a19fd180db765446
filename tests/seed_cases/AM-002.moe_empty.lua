-- expect: error[out-of-range] must not be empty
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.qwen" { size = "3-moe-tiny", capacity_factor = "all" },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 2, moe = { activation_checkpointing_modules = {} } },
}
