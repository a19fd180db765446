-- expect: error[missing-key] trainer.parallelism | data, tensor, and domain
return require "dialects.credit" {
  world_size = 4, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { amp = false },
}
