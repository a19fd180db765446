-- DeepSeek-V2 and V3: require "models.deepseek" "v3", or { size = "v3", layers = 4 } to change
-- parts of it. Attention makes keys and values from one small projection. The first layers are
-- dense. The others have experts: each token uses top_k routed experts and all shared experts. The
-- modules for multi-token prediction, and the small balance loss of V3, are left out. balance_rate
-- = 0.001 adds the bias that balances V3's experts. YaRN extends the rotary positions from 4096 to
-- 163840 tokens, as in config.json. The published weights need YaRN. The pre-training on 4096
-- tokens did not use it: rope_scaling = false switches it off.
local nn, decoder = require "tandem.nn", require "models.decoder"

local function yarn(mscale, context)
  return { kind = "yarn", factor = 40, fast = 32, slow = 1, context = context or 4096, mscale = mscale, mscale_all_dim = mscale }
end

-- https://huggingface.co/deepseek-ai: config.json of each. scaling: the factor of the sum of the routed experts.
local sizes = {
  ["v2-lite"] = { dim = 2048, layers = 27, dense = 1, heads = 16, kv_rank = 512, hidden = 10944, expert_hidden = 1408,
    experts = 64, top_k = 6, shared = 2, normalise = false, rope_scaling = yarn(0.707) },
  ["v2"] = { dim = 5120, layers = 60, dense = 1, heads = 128, kv_rank = 512, q_rank = 1536, hidden = 12288,
    expert_hidden = 1536, experts = 160, top_k = 6, shared = 2, normalise = false, scaling = 16.0, groups = 8, top_groups = 3,
    rope_scaling = yarn(0.707) },
  ["v3"] = { dim = 7168, layers = 61, dense = 3, heads = 128, kv_rank = 512, q_rank = 1536, hidden = 18432,
    expert_hidden = 2048, experts = 256, top_k = 8, shared = 1, vocab = 129280, scaling = 2.5, groups = 8, top_groups = 4,
    sigmoid = true },
  ["tiny"] = { dim = 64, layers = 3, dense = 1, heads = 4, kv_rank = 24, q_rank = 32, nope_dim = 16, rope_dim = 8, value_dim = 12,
    hidden = 160, expert_hidden = 32, experts = 8, top_k = 2, shared = 1, vocab = 256, scaling = 2.5, groups = 4, top_groups = 2,
    sigmoid = true, rope_scaling = yarn(1.0, 64) },
}
local defaults = { vocab = 102400, q_rank = false, nope_dim = 128, rope_dim = 64, value_dim = 128, theta = 10000.0, eps = 1e-6,
  normalise = true, scaling = 1.0, groups = 1, top_groups = 1, sigmoid = false, capacity_factor = 1.25, aux_loss = 0.001,
  balance_rate = 0.0, rope_scaling = yarn(1.0) }

local function mlp(dim, hidden, out_init)
  return nn.module {
    w1 = nn.linear(dim, hidden), w3 = nn.linear(dim, hidden), w2 = nn.linear(hidden, dim, { init = out_init }),
    tp_col = { "w1", "w3" }, tp_row = "w2",
    forward = function(m, x) return m.w2(nn.silu(m.w1(x)) * m.w3(x)) end,
  }
end

local function experts(c, out_init)
  return nn.module {
    routed = nn.moe { dim = c.dim, hidden = c.expert_hidden, experts = c.experts, top_k = c.top_k, normalise = c.normalise,
      capacity_factor = c.capacity_factor, aux_loss = c.sigmoid and 0 or c.aux_loss, out_init = out_init, scaling = c.scaling,
      sigmoid = c.sigmoid, balance_rate = c.balance_rate, groups = c.groups, top_groups = c.top_groups },
    shared = mlp(c.dim, nn.within("deepseek", "shared", c.shared, 1, 1 << 20) * c.expert_hidden, out_init),
    tp_col = { "routed.w1", "routed.w3" }, tp_row = "routed.w2",
    forward = function(m, x) return m.routed(x) + m.shared(x) end,
  }
end

local function block(c, index)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    attention_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    attention = nn.latent_attention { dim = c.dim, heads = c.heads, kv_rank = c.kv_rank, q_rank = c.q_rank or nil,
      nope_dim = c.nope_dim, rope_dim = c.rope_dim, value_dim = c.value_dim, rope_theta = c.theta,
      rope_scaling = c.rope_scaling, eps = c.eps, out_init = out_init },
    ffn_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    feed_forward = index < nn.within("deepseek", "dense", c.dense, 0, 1 << 30) and mlp(c.dim, c.hidden, out_init) or experts(c, out_init),
    tp_col = { "attention.wq", "attention.wk_b", "attention.wv_b" }, tp_row = "attention.wo",
    forward = function(m, x)
      local h = x + m.attention(m.attention_norm(x))
      return h + m.feed_forward(m.ffn_norm(h))
    end,
  }
end

local function build(c) return decoder(c, block) end

-- The smallest model of the same structure: one dense layer, then experts.
local function shrink(c, mesh)
  local n = 2 * math.max(mesh.ep, 2)
  return nn.small(c, mesh, { heads = mesh.tp * mesh.cp, dense = math.min(c.dense, 1), kv_rank = 7, q_rank = c.q_rank and 9,
    nope_dim = 4, rope_dim = 4, value_dim = 3, expert_hidden = 3 * mesh.tp, shared = 1, experts = n,
    groups = c.groups > 1 and n // 2 or 1, top_groups = c.groups > 1 and n // 4 or 1 })
end

return function(what)
  local name, config = nn.family("deepseek", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
