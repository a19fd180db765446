-- expect: error[cp-factors] cp_ulysses_size = 3 must divide cp_size = 2
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { cp_size = 2, cp_ulysses_size = 3 },
}
