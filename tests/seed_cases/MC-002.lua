-- expect: ok mesh dp_shard=2 tp=2 | ranks 4 | data 0/2 0/2 1/2 1/2 | weights 56
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 2 } },
}
