-- expect: ok mesh dp_shard=4 tp=2 | ranks 8 | data 0/4 0/4 1/4 1/4 2/4 2/4 3/4 3/4 | weights 56
return require "dialects.credit" {
  world_size = 8, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 2 } },
}
