-- expect: ok weights 28 | count tp all_reduce 25 | equal
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" { size = "tiny", dim = { 16 }, depth = { 2 } },
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
