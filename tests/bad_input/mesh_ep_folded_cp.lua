local nn = require "tandem.nn"
local block = nn.block {
  norm = nn.rmsnorm(48), attention = nn.attention { dim = 48, heads = 24, kv_heads = 24 }, moe = nn.moe { dim = 48, hidden = 48, experts = 6 },
  tp_col = { "attention.wq", "attention.wk", "attention.wv" }, tp_row = { "attention.wo" },
  forward = function(m, x) return m.moe(x + m.attention(m.norm(x))) end,
}
return plan {
  model = nn.module { e = nn.embedding(8, 48), layers = nn.list { block }, h = nn.linear(48, 8),
    forward = function(m, x, y) return nn.cross_entropy(m.h(m.layers(m.e(x))), y) end },
  batch = { global = 12, seq = 96 }, mesh = { tp = 4, cp = 12, ep = 16, ep_mode = "folded" },
  parallel = { tp {}, ep {}, cp { mode = "ring", all_to_all = 6 }, fsdp2 {} },
}
