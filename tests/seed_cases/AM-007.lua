-- expect: error[replicate-whole] dp_replicate_size=8 | dp_size=8 | DDP usecase
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { dp_size = 8, dp_replicate_size = 8 },
}
