-- expect: error[divides-features] tp = 2
return require "dialects.credit" {
  world_size = 2, seq_length = 5,
  model = require "parts.pair" { hidden = 15 },
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
