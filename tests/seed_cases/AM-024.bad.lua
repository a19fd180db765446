-- expect: error[divides-heads] num_key_value_heads (6)
-- expect: error[divides-heads] num_attention_heads (6)
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", heads = 6, kv_heads = 6, head_dim = 8 },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 4 },
}
