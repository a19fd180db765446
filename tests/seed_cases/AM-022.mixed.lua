-- expect: error[axis-unsupported] a ring of 2 and Ulysses of 2 | cp_ulysses_degree = 4
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { cp_size = 4, cp_ring_degree = 2, cp_ulysses_degree = 2 },
}
