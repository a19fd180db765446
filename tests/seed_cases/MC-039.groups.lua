-- expect: error[tp-style] tp_col = 'col' | nn.conv2d
return require "dialects.credit" {
  world_size = 2, field = { channels = 8, height = 4, width = 6 },
  model = require "parts.conv_pair" { column = { groups = 2 } },
  trainer = { parallelism = { data = "none", tensor = 2 } },
}
