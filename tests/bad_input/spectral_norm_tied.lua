local nn = require "tandem.nn"
local tokens = nn.embedding(32, 8)
return plan {
  model = nn.module {
    tokens = tokens,
    head = nn.linear(8, 32, { weight = tokens, spectral_norm = true }),
    forward = function(m, ids, labels) return nn.cross_entropy(m.head(m.tokens(ids)), labels) end,
  },
  batch = { global = 4, seq = 64 },
}
