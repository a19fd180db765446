local nn = require "tandem.nn"
return plan {
  model = nn.module {
    embed = nn.embedding(32, 24),
    attention = nn.attention { dim = 24, heads = 6, kv_heads = 2, fused = true },
    head = nn.linear(24, 32),
    tp_col = "attention.wqkv", tp_row = "attention.wo",
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.attention(m.embed(tokens))), labels)
    end,
  },
  batch = { global = 2, seq = 8 },
  mesh = { tp = 4 },
  parallel = { tp {} },
}
