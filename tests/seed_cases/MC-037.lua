-- expect: ok weights 3 | local blocks.0.col.weight 8,8 | local blocks.0.row.weight 8,8 | equal
return require "dialects.credit" {
  world_size = 2, seq_length = 5,
  model = require "parts.pair" {},
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
