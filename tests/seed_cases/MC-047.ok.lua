-- expect: ok weights 3
return require "dialects.credit" {
  world_size = 2, seq_length = 5,
  model = require "parts.pair" {},
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
