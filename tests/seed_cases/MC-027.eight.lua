-- expect: ok halo 3 | equal
return require "dialects.credit" {
  world_size = 2, field = { channels = 2, height = 16, width = 6 },
  model = require "parts.conv_grid" { kernel = 8, stride = 2 },
  trainer = { parallelism = { data = "none", tensor = 1, domain = 2 } },
}
