-- expect: ok mesh tp=4 | weights 3
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "parts.pair" {},
  hf = { torch_dtype = "float32", num_attention_heads = 8, num_key_value_heads = 4 },
  distributed = { tp_size = 4 },
}
