-- expect: ok mesh dp_replicate=2 domain=2 | equal
return require "dialects.credit" {
  world_size = 4, field = { channels = 2, height = 8, width = 6 },
  model = require "parts.conv_grid" { kernel = 3 },
  trainer = { parallelism = { data = "ddp", tensor = 1, domain = 2 } },
}
