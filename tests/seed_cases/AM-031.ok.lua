-- expect: ok weights 3
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "parts.pair" {},
  hf = { torch_dtype = "float32", num_attention_heads = 8 },
  distributed = { tp_size = 2 },
}
