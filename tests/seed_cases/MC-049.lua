-- expect: ok equal | norm 8 eps
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "none", tensor = 2 }, grad_max_norm = 0.01 },
}
