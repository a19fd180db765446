-- expect: error[divides-heads] num_key_value_heads (8) | tp_size (3)
-- expect: error[divides-heads] num_attention_heads (8) | tp_size (3)
-- A model of the user whose config has a key of the library's models, with a value of another kind
return require "dialects.automodel" {
  world_size = 3, seq_length = 32,
  model = { name = "own", config = { heads = 8, kv_heads = 0 / 0 } },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 3 },
}
