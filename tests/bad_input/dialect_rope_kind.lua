-- A kind of scaling that Tandem does not have is refused by name.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { rope_type = "dynamic", factor = 2.0 } },
}
