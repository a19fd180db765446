-- expect: ok mesh dp_shard=2 domain=2 | ranks 4 | equal
return require "dialects.credit" {
  world_size = 4, field = { channels = 8, height = 4, width = 6 },
  model = require "parts.conv_pair" {},
  trainer = { parallelism = { data = "fsdp2", tensor = 1, domain = 2 } },
}
