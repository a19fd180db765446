-- expect: ok mesh tp=2 | weights 56 | equal
return plan {
  model = require "models.wxformer" { size = "tiny", heads = 4, use_spectral_norm = true },
  batch = { global = 2, seq = 16 },
  mesh = { tp = 2 },
  parallel = { tp { sequence = true } },
}
