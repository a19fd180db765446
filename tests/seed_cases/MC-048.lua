-- expect: error[tp-matched-nothing] tp = 2
return require "dialects.credit" {
  world_size = 2, seq_length = 5,
  model = require "parts.pair" { opted = false },
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
