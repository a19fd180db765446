-- Fused projections where ranks outnumber the KV heads: the inner two of four ranks share one. Two MLPs of
-- different widths are one weight.
local nn = require "tandem.nn"

local function block()
  return nn.block {
    norm = nn.rmsnorm(32),
    attention = nn.attention { dim = 32, heads = 4, kv_heads = 2, bias = true, qk_norm = true, fused = true, rope_theta = 1e4 },
    both = nn.linear(32, 48, { segments = { 32, 16 }, bias = true }),
    wide = nn.linear(32, 32), narrow = nn.linear(16, 32),
    tp_col = { "attention.wqkv", "both" }, tp_row = { "attention.wo", "wide", "narrow" },
    forward = function(m, x)
      x = x + m.attention(m.norm(x))
      local y = m.both(x)
      return x + m.wide(nn.gelu(nn.segment(y, 1))) + m.narrow(nn.silu(nn.segment(y, 2)))
    end,
  }
end

return plan {
  model = {
    name = "shared", config = {},
    build = function()
      return nn.module {
        embed = nn.embedding(64, 32), block = block(), head = nn.linear(32, 64),
        tp_vocab = { "embed", "head" },
        forward = function(m, tokens, labels) return nn.cross_entropy(m.head(m.block(m.embed(tokens))), labels) end,
      }
    end,
  },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 2, seq = 8 },
  mesh = { dp_shard = 2, tp = 4 },
  parallel = { tp { sequence = true }, ac { ops = { "attention", "part" } }, fsdp2 {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
