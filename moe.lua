local nn = require 'tandem.nn'
return plan { batch = { seq = 6, global = 8, micro = 1 },
  mesh = { dp_replicate = 2 }, parallel = { ddp {} },
  model = nn.module { e = nn.embedding(12, 8), norm = nn.rmsnorm(8),
    moe = nn.moe { dim = 8, hidden = 4, experts = 6 }, h = nn.linear(8, 12),
    forward = function(m, t, y)
      local x = m.moe(m.moe(m.norm(m.e(t))))
      return nn.cross_entropy(m.h(x), y) end } }
