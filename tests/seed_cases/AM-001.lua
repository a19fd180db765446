-- expect: error[mesh-product] world_size (8) | (3 * 1 * 1 = 3)
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" { size = "tiny", heads = 6, kv_heads = 3, head_dim = 8 },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 3 },
}
