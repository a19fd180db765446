local nn = require "tandem.nn"
local shared = nn.linear(8, 8, { spectral_norm = true })
local function block()
  return nn.block { own = shared, forward = function(m, x) return x + m.own(nn.silu(x)) end }
end
return plan {
  model = nn.module {
    tokens = nn.embedding(32, 8), layers = nn.list(2, block), head = nn.linear(8, 32),
    forward = function(m, ids, labels) return nn.cross_entropy(m.head(m.layers(m.tokens(ids))), labels) end,
  },
  batch = { global = 4, seq = 64 },
  mesh = { pp = 2 },
  parallel = { pp { schedule = "1f1b" } },
}
