-- expect: ok mesh dp_shard=8 | count dp_shard all_gather 4 | count dp_shard reduce_scatter 3
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { strategy = "FSDP2" },
}
