-- expect: ok mesh domain=2 | equal
return require "dialects.credit" {
  world_size = 2, field = { channels = 2, height = 8, width = 16 },
  model = require "parts.conv_grid" { kernel = 3, rows = { 2, 2 }, columns = { 2, 3 }, earth = true },
  trainer = { parallelism = { data = "none", tensor = 1, domain = 2 } },
}
