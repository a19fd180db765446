local nn = require "tandem.nn"
return plan {
  model = nn.linear(4, 4, { spectral_norm = true }),
  batch = { global = 4, seq = 64 },
}
