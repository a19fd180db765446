-- expect: ok mesh dp_shard=6
return require "dialects.credit" {
  world_size = 6, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 } },
}
