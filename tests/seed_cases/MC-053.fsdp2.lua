-- expect: ok mesh dp_shard=2 | count dp_shard all_gather 9 | count dp_shard reduce_scatter 5 | equal
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 } },
}
