-- instead: a row is weighed by its place on the whole grid, so there is no list of weights that could be too short
-- expect: ok mesh domain=2 | equal
return require "dialects.credit" {
  world_size = 2, field = { channels = 2, height = 6, width = 6 },
  model = require "parts.conv_grid" { kernel = 3, latitude = true },
  trainer = { parallelism = { data = "none", tensor = 1, domain = 2 } },
}
