-- A scaling needs all of its keys, and takes no others.
return require "dialects.automodel" {
  world_size = 8, seq_length = 64,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32",
    rope_scaling = { rope_type = "llama3", factor = 8.0, low_freq_factor = 1.0, beta_fast = 32 } },
}
