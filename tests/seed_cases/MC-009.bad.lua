-- expect: error[unknown-word] 'fsdp'
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp", tensor = 2 } },
}
