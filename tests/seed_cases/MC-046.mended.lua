-- expect: error[tp-matched-nothing] tensor = 3 has NO effect
return require "dialects.credit" {
  world_size = 3, seq_length = 18,
  model = require "models.wxformer" { size = "tiny", heads = 4 },
  trainer = { parallelism = { data = "none", tensor = 3 }, use_spectral_norm = true },
}
