-- expect: error[ep-matched-nothing] ep = 2
local nn = require "tandem.nn"
return require "dialects.automodel" {
  world_size = 8, seq_length = 32,
  model = nn.module { e = nn.embedding(16, 8),
    b = nn.block { n = nn.rmsnorm(8), forward = function(m, x) return x + m.n(x) end }, h = nn.linear(8, 16),
    forward = function(m, x, y) return nn.cross_entropy(m.h(m.b(m.e(x))), y) end },
  hf = { torch_dtype = "float32" },
  distributed = { ep_size = 2, dp_size = 8 },
}
