-- expect: ok mesh dp_shard=8
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { cp_size = 1, cp_ring_size = 1, cp_ulysses_size = 1 },
}
