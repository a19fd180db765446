-- expect: ok equal | norm 8 eps
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 2 }, grad_max_norm = 0.01 },
}
