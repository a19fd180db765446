local nn = require "tandem.nn"
return plan {
  model = nn.module { e = nn.embedding(8, 8), moe = nn.moe { dim = 8, hidden = 8, experts = 4, groups = 4, top_groups = 1, top_k = 2 }, h = nn.linear(8, 8),
    forward = function(m, x, y) return nn.cross_entropy(m.h(m.moe(m.e(x))), y) end },
  batch = { global = 12, seq = 4 },
}
