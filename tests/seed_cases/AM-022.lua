-- expect: error[cp-factors] ring 2 x ulysses 4 = 8 | cp_size = 4
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { cp_size = 4, cp_ring_size = 2, cp_ulysses_size = 4 },
}
