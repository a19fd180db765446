-- Llama's scaling does not take the stretched context for the original one.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", max_position_embeddings = 131072,
    rope_scaling = { rope_type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0 } },
}
