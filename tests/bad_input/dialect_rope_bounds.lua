-- Bounds of Llama's scaling are told by the configuration's names.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", rope_scaling = { type = "llama3", factor = -2.0, low_freq_factor = 4.0, high_freq_factor = 1.0,
    original_max_position_embeddings = 0 } },
}
