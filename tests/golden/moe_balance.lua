-- Sigmoids with a bias that balances four experts, which are shared over 2 and sharded over 2. The biases of a block are a
-- unit of their own without moments. Counts of choices are summed like gradients, but no gradient norm includes them. The
-- router keeps its logits small (z_loss).
local nn = require "tandem.nn"
local function block()
  return nn.block {
    feed_forward = nn.moe { dim = 8, hidden = 12, experts = 4, capacity_factor = 1.0, sigmoid = true, aux_loss = 0,
      balance_rate = 0.001, z_loss = 0.01 },
    forward = function(m, x) return x + m.feed_forward(x) end,
  }
end
return plan {
  model = nn.module { embed = nn.embedding(16, 8), layers = nn.list(2, block), head = nn.linear(8, 16),
    forward = function(m, x, y) return nn.cross_entropy(m.head(m.layers(m.embed(x))), y) end },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 8, micro = 1, seq = 8 },
  mesh = { dp_shard = 2, ep = 2 },
  parallel = { ep {}, fsdp2 {} },
  optimizer = adamw { lr = 1e-3 },
}
