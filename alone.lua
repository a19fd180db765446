local nn = require 'tandem.nn'
return plan { batch = { seq = 4 }, init = 'varied', precision = { compute = 'fp64' },
  model = nn.module { e = nn.embedding(7, 7), n = nn.rmsnorm(7),
    forward = function(m, t, y) return nn.cross_entropy(m.n(m.e(t)), y) end } }
