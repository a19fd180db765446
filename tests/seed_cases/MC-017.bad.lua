-- expect: error[wrong-type] tensor must be an integer | 'two'
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = "two" } },
}
