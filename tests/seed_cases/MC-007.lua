-- expect: ok mesh dp_shard=4 tp=2 | ranks 8
return require "dialects.credit" {
  world_size = 8, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 2 } },
}
