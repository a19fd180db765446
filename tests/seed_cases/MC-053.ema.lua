-- expect: error[dialect-unsupported] use_ema
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "fsdp2", tensor = 1 }, use_ema = true },
}
