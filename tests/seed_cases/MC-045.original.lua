-- expect: note[tp-matched-nothing] NO effect | 2 ranks repeat
-- expect: ok original miles-credit | ranks 1 | weights 0
return require "dialects.credit" {
  world_size = 2, seq_length = 16, as = "original",
  model = require "models.wxformer" "tiny",
  trainer = { parallelism = { data = "none", tensor = 2 }, use_spectral_norm = true },
}
