-- expect: ok local blocks.0.col.weight 8,8,1,1 | local blocks.0.row.weight 8,8,1,1 | local blocks.0.row.bias 8 | equal
return require "dialects.credit" {
  world_size = 2, field = { channels = 8, height = 4, width = 6 },
  model = require "parts.conv_pair" {},
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
