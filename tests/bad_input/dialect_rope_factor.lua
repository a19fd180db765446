-- A factor below 1 is named as the user wrote it.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { type = "linear", factor = 0.0 } },
}
