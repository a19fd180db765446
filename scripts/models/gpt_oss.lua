-- gpt-oss: require "models.gpt_oss" "20b", or { size = "20b", layers = 4 } to change parts of it.
-- All linears have biases. Every second layer sees a window of keys. Each head has a sink. All
-- feed-forward blocks are experts whose gates are limited. YaRN extends the rotary positions from
-- 4096 to 131072 tokens, as in config.json. rope_scaling = false switches it off.
local nn, decoder = require "tandem.nn", require "models.decoder"

local function yarn(context)
  return { kind = "yarn", factor = 32, fast = 32, slow = 1, context = context, truncate = false }
end

-- https://huggingface.co/openai: config.json of each
local sizes = {
  ["20b"] = { dim = 2880, layers = 24, heads = 64, kv_heads = 8, hidden = 2880, experts = 32 },
  ["120b"] = { dim = 2880, layers = 36, heads = 64, kv_heads = 8, hidden = 2880, experts = 128 },
  ["tiny"] = { dim = 64, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, hidden = 48, experts = 4, top_k = 2, vocab = 256,
    window = 8, rope_scaling = yarn(64) },
}
local defaults = { vocab = 201088, head_dim = 64, theta = 150000.0, eps = 1e-5, top_k = 4, window = 128, limit = 7.0,
  capacity_factor = 1.25, aux_loss = 0.001, rope_scaling = yarn(4096) }

local function block(c, index)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    attention_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    attention = nn.attention { dim = c.dim, heads = c.heads, kv_heads = c.kv_heads, head_dim = c.head_dim, bias = true,
      sinks = true, window = index % 2 == 0 and c.window or nil, rope_theta = c.theta,
      rope_scaling = c.rope_scaling, out_init = out_init },
    ffn_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    feed_forward = nn.moe { dim = c.dim, hidden = c.hidden, experts = c.experts, top_k = c.top_k, bias = true,
      limit = c.limit, capacity_factor = c.capacity_factor, aux_loss = c.aux_loss, out_init = out_init },
    tp_col = { "attention.wq", "attention.wk", "attention.wv", "attention.sinks", "feed_forward.w1", "feed_forward.w3" },
    tp_row = { "attention.wo", "feed_forward.w2" },
    forward = function(m, x)
      local h = x + m.attention(m.attention_norm(x))
      return h + m.feed_forward(m.ffn_norm(h))
    end,
  }
end

local function build(c) return decoder(c, block) end

local function shrink(c, mesh) return nn.small(c, mesh, { window = 3, limit = 0.7 }) end

return function(what)
  local name, config = nn.family("gpt_oss", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
