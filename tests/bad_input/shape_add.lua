local nn = require "tandem.nn"

local function build()
  return nn.module {
    e = nn.embedding(32, 16),
    head = nn.linear(16, 32),
    up = nn.linear(16, 24),
    forward = function(m, t, y)
      local x = m.e(t)
      x = x + m.up(x)
      return nn.cross_entropy(m.head(x), y)
    end,
  }
end
return plan {
  model = { name = "test", build = build },
  batch = { global = 8, micro = 1, seq = 32 },
}
