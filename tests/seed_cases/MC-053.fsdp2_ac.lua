-- expect: ok parallel ac(full), fsdp2(reshard) | count dp_shard all_gather 9 | equal | recomputed block 4/114
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 }, activation_checkpoint = true },
}
