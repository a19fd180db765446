-- expect: ok mesh dp_shard=2 domain=2 tp=2 | ranks 8 | equal
return require "dialects.credit" {
  world_size = 8, field = { channels = 8, height = 4, width = 6 },
  model = require "parts.conv_pair" {},
  trainer = { parallelism = { data = "fsdp2", tensor = 2, domain = 2 } },
}
