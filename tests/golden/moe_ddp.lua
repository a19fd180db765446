-- Experts shared over 2, with two replicas of each under DDP. Buckets of experts are summed over dp_replicate, all others
-- also over ep. Recomputed blocks exchange their tokens again. No token is dropped, and each token has one expert.
local nn = require "tandem.nn"
local function block()
  return nn.block {
    norm = nn.layernorm(8), feed_forward = nn.moe { dim = 8, hidden = 12, experts = 4, top_k = 1, capacity_factor = "all",
      normalise = false },
    shared = nn.linear(8, 8), -- an expert that all tokens go to is a module of one's own beside them
    forward = function(m, x)
      local h = m.norm(x)
      return x + m.feed_forward(h) + m.shared(h)
    end,
  }
end
return plan {
  model = nn.module { embed = nn.embedding(16, 8), layers = nn.list(2, block), head = nn.linear(8, 16),
    forward = function(m, x, y) return nn.cross_entropy(m.head(m.layers(m.embed(x))), y) end },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 1, seq = 8 },
  mesh = { dp_replicate = 2, ep = 2 },
  parallel = { ep {}, ac "full", ddp { bucket_mib = 0.002 } },
  optimizer = adamw { lr = 1e-3 },
}
