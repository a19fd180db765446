-- expect: note[bf16-storage] bf16
-- expect: ok precision bf16 bf16 f32
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", heads = 8, kv_heads = 8, head_dim = 8 },
  hf = {  },
  distributed = { tp_size = 4 },
}
