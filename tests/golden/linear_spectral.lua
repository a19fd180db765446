-- Spectral norm over tensor pairs and FSDP2 over 4. The norm is that of the whole weight. The vectors advance in
-- the first of two micro-batches, and the recomputed block reads the vectors of its own micro-batch.
local nn = require "tandem.nn"
local function block()
  return nn.block {
    norm = nn.layernorm(8),
    up = nn.linear(8, 24, { bias = true, spectral_norm = true }),
    down = nn.linear(24, 8, { spectral_norm = true }),
    tp_col = "up", tp_row = "down",
    forward = function(m, x) return x + m.down(nn.gelu(m.up(m.norm(x)))) end,
  }
end
return plan {
  model = nn.module {
    tokens = nn.embedding(32, 8), layers = nn.list(1, block), head = nn.linear(8, 32),
    forward = function(m, tokens, labels) return nn.cross_entropy(m.head(m.layers(m.tokens(tokens))), labels) end,
  },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 8 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
