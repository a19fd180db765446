-- expect: error[out-of-range] >= 1, got 0
return require "dialects.credit" {
  world_size = 1, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "ddp", tensor = 0 } },
}
