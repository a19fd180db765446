-- expect: error[tp-matched-nothing] NO effect | tensor = 2
return require "dialects.credit" {
  world_size = 2, seq_length = 16,
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "none", tensor = 2 }, use_spectral_norm = true },
}
