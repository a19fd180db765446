-- expect: ok mesh tp=4 | local layers.0.attention.wk.weight 64,2,8
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", heads = 8, kv_heads = 8, head_dim = 8 },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 4 },
}
