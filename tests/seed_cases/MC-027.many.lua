-- expect: ok halo 15 | equal
return require "dialects.credit" {
  world_size = 2, field = { channels = 2, height = 64, width = 6 },
  model = require "parts.conv_grid" { kernel = 32, stride = 2 },
  trainer = { parallelism = { data = "none", tensor = 1, domain = 2 } },
}
