-- expect: error[mesh-product] = 16 | world_size is 8
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { dp_size = 8, tp_size = 2 },
}
