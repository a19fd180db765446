-- expect: ok mesh dp_shard=4 | ranks 4
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { dp_size = "none", dp_replicate_size = "none", tp_size = "None", cp_size = "none" },
}
