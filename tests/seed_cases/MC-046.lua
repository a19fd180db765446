-- expect: note[tp-matched-nothing] tensor = 3 has NO effect
-- expect: ok original miles-credit | ranks 1 | weights 0
return require "dialects.credit" {
  world_size = 3, seq_length = 18, as = "original",
  model = require "models.wxformer" { size = "tiny", heads = 4 },
  trainer = { parallelism = { data = "none", tensor = 3 }, use_spectral_norm = true },
}
