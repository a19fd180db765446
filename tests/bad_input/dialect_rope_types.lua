-- Two types that differ are refused.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { type = "linear", rope_type = "yarn", factor = 2.0 } },
}
