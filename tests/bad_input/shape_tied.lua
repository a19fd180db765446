local nn = require "tandem.nn"
local bad = nn.linear(8, 32, { weight = nn.embedding(32, 16) })
local function build()
  return nn.module {
    e = nn.embedding(32, 16),
    forward = function(m, t, y)
      return m.e(t)
    end,
  }
end
return plan {
  model = { name = "test", build = build },
  batch = { global = 8, micro = 1, seq = 32 },
}
