-- expect: ok local blocks.0.row.bias 8 | local blocks.0.col.bias 8 | count tp all_reduce 3 | equal
return require "dialects.credit" {
  world_size = 2, seq_length = 5,
  model = require "parts.pair" {},
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
