local nn = require 'tandem.nn'
return plan { model = nn.module { e = nn.embedding(32, 30), h = nn.linear(30, 32, { segments = { 12, 20 } }), o = nn.linear(12, 32),
forward = function(m, x, y) return nn.cross_entropy(m.o(nn.segment(m.h(m.e(x)), 1)), y) end },
batch = { seq = 900, global = 8 }, mesh = { dp_shard = 8, tp = 12 } }
