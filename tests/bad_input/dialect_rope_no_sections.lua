-- A decoder of text alone has no sections.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { type = "mrope", mrope_section = { 2, 2, 2 } } },
}
