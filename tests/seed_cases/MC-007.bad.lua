-- expect: error[mesh-product] world_size=8 | tensor*domain=3
return require "dialects.credit" {
  world_size = 8, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 3 } },
}
