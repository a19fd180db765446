local nn = require "tandem.nn"

local function build()
  return nn.module {
    e = nn.embedding(32, 16),
    head = nn.linear(16, 32),
    forward = function(m, t, y)
      return nn.cross_entropy(m.head(m.e(m.e(t))), y)
    end,
  }
end
return plan {
  model = { name = "test", build = build },
  batch = { global = 8, micro = 1, seq = 32 },
}
