-- expect: ok mesh dp_shard=4 cp=2
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { cp_size = 2, cp_ulysses_degree = 2 },
}
