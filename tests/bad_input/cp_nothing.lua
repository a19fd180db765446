local nn = require "tandem.nn"
return plan {
  model = nn.module { e = nn.embedding(8, 8), h = nn.linear(8, 8),
    forward = function(m, x, y) return nn.cross_entropy(m.h(m.e(x)), y) end },
  batch = { global = 12, seq = 4 }, mesh = { cp = 2 }, parallel = { cp { mode = "all_to_all" } },
}
