local nn = require "tandem.nn"
local function build()
  return nn.module {
    e = nn.embedding(8, 16),
    head = nn.linear(16, 8),
    forward = function(m, t, y) return nn.cross_entropy(m.head(nn.scale(m.e(t))), y) end,
  }
end
return plan { model = { build = build }, batch = { seq = 4 } }
