-- expect: ok mesh dp_replicate=2 dp_shard=4
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "fsdp2", dp_replicate_size = 2 },
}
