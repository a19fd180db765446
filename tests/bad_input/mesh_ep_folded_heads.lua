local nn = require "tandem.nn"
local block = nn.block {
  norm = nn.rmsnorm(24), attention = nn.attention { dim = 24, heads = 12, kv_heads = 2 }, moe = nn.moe { dim = 24, hidden = 24, experts = 12 },
  tp_col = { "attention.wq", "attention.wk", "attention.wv" }, tp_row = { "attention.wo" },
  forward = function(m, x) return m.moe(x + m.attention(m.norm(x))) end,
}
return plan {
  model = nn.module { e = nn.embedding(8, 24), layers = nn.list { block }, h = nn.linear(24, 8),
    forward = function(m, x, y) return nn.cross_entropy(m.h(m.layers(m.e(x))), y) end },
  batch = { global = 12, seq = 12 }, mesh = { dp_shard = 2, tp = 12, ep = 4, ep_mode = "folded" },
  parallel = { tp {}, ep {}, fsdp2 {} },
}
