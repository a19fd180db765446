-- expect: ok mesh dp_replicate=2 dp_shard=4 | data 0/8 1/8 2/8 3/8 4/8 5/8 6/8 7/8
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { dp_replicate_size = 2 },
}
