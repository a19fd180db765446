local nn = require "tandem.nn"
local function moe(n) return nn.moe { dim = 8, hidden = 8, experts = n, capacity_factor = "dropless" } end
return plan {
  model = nn.module { e = nn.embedding(8, 8), a = moe(4), b = moe(3), h = nn.linear(8, 8),
    forward = function(m, x, y) return nn.cross_entropy(m.h(m.b(m.a(m.e(x)))), y) end },
  batch = { global = 4, micro = 1, seq = 8 }, mesh = { cp = 2 },
  parallel = { cp {}, fsdp2 { units = { "a", "b" } } },
}
