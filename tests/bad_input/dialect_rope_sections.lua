-- Sections that the model does not have are refused.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.qwen2_vl" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { type = "mrope", mrope_section = { 2, 2, 3 } } },
}
