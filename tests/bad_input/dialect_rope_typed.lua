-- The type is a text.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { type = {} } },
}
