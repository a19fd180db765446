local nn = require "tandem.nn"
return plan {
  model = nn.attention { dim = 8, heads = 2, spectral_norm = true, out_init = nn.zeros },
  batch = { global = 4, seq = 64 },
}
