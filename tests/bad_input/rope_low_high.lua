local nn = require "tandem.nn"
local function build()
  return nn.module {
    e = nn.embedding(8, 16),
    a = nn.attention { dim = 16, heads = 2, rope_theta = 1e4, rope_scaling = { factor = 8, low = 5, high = 4 } },
    head = nn.linear(16, 8),
    forward = function(m, t, y) return nn.cross_entropy(m.head(m.a(m.e(t))), y) end,
  }
end
return plan { model = { build = build }, batch = { seq = 4 } }
