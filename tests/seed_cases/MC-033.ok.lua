-- expect: ok mesh domain=4 | equal
return require "dialects.credit" {
  world_size = 4, field = { channels = 2, height = 8, width = 6 },
  model = require "parts.conv_grid" { kernel = 3, latitude = true },
  trainer = { parallelism = { data = "none", tensor = 1, domain = 4 } },
}
