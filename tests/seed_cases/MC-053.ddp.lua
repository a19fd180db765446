-- expect: ok mesh dp_replicate=2 | equal
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "ddp", tensor = 1 } },
}
