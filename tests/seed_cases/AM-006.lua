-- expect: error[replicate-divides] dp_size must be a multiple of dp_replicate_size | 8 | 3
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { dp_replicate_size = 3 },
}
