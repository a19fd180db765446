-- expect: ok mesh tp=5 | local layers.0.attention.wk.weight 64,2,8
return require "dialects.automodel" {
  world_size = 5, seq_length = 32,
  model = require "models.llama" { size = "tiny", heads = 10, kv_heads = 10, head_dim = 8 },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 5 },
}
