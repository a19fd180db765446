-- expect: ok mesh dp_shard=4 | parallel fsdp2(reshard)
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 } },
}
