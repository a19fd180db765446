-- expect: error[mesh-product] world_size=4 | tensor*domain=8
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 8 } },
}
