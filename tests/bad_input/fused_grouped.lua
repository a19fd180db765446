local nn = require "tandem.nn"
return plan {
  model = nn.module {
    embed = nn.embedding(32, 16),
    attention = nn.attention { dim = 16, heads = 4, kv_heads = 2, fused = true },
    head = nn.linear(16, 32),
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.attention(m.embed(tokens))), labels)
    end,
  },
  batch = { global = 2, seq = 8 },
}
