-- Six experts shared over 2, with FSDP2 over 2 and sequence parallel pairs over 2 beside them: the exchanges
-- with experts, and the ranks that sum their gradients. Tokens are dropped.
local nn = require "tandem.nn"
local block = nn.block {
  attention_norm = nn.rmsnorm(16), attention = nn.attention { dim = 16, heads = 4, kv_heads = 2, rope_theta = 1e4 },
  ffn_norm = nn.rmsnorm(16), feed_forward = nn.moe { dim = 16, hidden = 24, experts = 6, top_k = 2, capacity_factor = 1.0 },
  tp_col = { "attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3" },
  tp_row = { "attention.wo", "feed_forward.w2" },
  forward = function(m, x)
    local h = x + m.attention(m.attention_norm(x))
    return h + m.feed_forward(m.ffn_norm(h))
  end,
}
return plan {
  model = nn.module { embed = nn.embedding(32, 16), layers = nn.list { block }, norm = nn.rmsnorm(16), head = nn.linear(16, 32),
    tp_vocab = { "embed", "head" },
    forward = function(m, x, y) return nn.cross_entropy(m.head(m.norm(m.layers(m.embed(x)))), y) end },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 2, ep = 2, tp = 2 },
  parallel = { tp { sequence = true }, ep {}, fsdp2 {} },
  optimizer = adamw { lr = 1e-3 },
}
