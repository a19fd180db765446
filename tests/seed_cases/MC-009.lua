-- expect: warning[not-applied] fsdp2{}
-- expect: ok mesh tp=2 | data 0/1 0/1
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 2 } },
}
