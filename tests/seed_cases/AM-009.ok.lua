-- expect: ok mesh dp_shard=4 tp=2
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { dp_size = 4, tp_size = 2 },
}
