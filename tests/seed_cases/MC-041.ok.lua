-- expect: ok mesh tp=4 | weights 56
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "none", tensor = 4 } },
}
