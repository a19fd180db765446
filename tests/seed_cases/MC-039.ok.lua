-- expect: ok equal
return require "dialects.credit" {
  world_size = 2, field = { channels = 8, height = 4, width = 6 },
  model = require "parts.conv_pair" { column = { kernel = 1 } },
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
