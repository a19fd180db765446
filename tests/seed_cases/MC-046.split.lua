-- expect: error[divides-heads] heads = 4 cannot be split evenly over tp = 3
-- expect: error[divides-features]
return plan {
  model = require "models.wxformer" { size = "tiny", heads = 4, use_spectral_norm = true },
  batch = { global = 2, seq = 18 },
  mesh = { tp = 3 },
  parallel = { tp { sequence = true } },
}
