-- expect: note[heads-unknown] 0 % 4
-- expect: ok original automodel | weights 3
return require "dialects.automodel" {
  world_size = 4, seq_length = 32, as = "original",
  model = require "parts.pair" {},
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 4 },
}
