-- Hints about tp_size agree: each size that one of them names divides the heads, too.
return require "dialects.automodel" {
  world_size = 12,
  seq_length = 64,
  model = require "models.llama" "3.1-8b",
  hf = { num_key_value_heads = -8 },
  distributed = { dp_size = 2, tp_size = 3 },
}
