-- expect: error[heads-unknown]
-- A model of the user whose config has a key of the library's models, with a value of another kind
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = { name = "own", config = { heads = "many", kv_heads = {} } },
  hf = { torch_dtype = "float32" },
  distributed = { tp_size = 2 },
}
