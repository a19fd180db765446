-- expect: error[unknown-key] 'pipeline'
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", pipeline = 2 } },
}
