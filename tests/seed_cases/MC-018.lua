-- expect: ok ranks 4 | data 0/2 0/2 1/2 1/2
return require "dialects.credit" {
  world_size = 4, field = { channels = 8, height = 4, width = 6 },
  model = require "parts.conv_pair" {},
  trainer = { parallelism = { data = "fsdp2", tensor = 1, domain = 2 } },
}
