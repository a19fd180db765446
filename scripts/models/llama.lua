-- Llama: require "models.llama" "3.1-8b", or { size = "3.1-8b", fused = true } to change parts of it. With fused, q, k, v are one weight, and so are w1, w3.
local nn, gate_up = require "tandem.nn", require "models.gate_up"

local fused_columns, llama3_1 = { "attention.wqkv", "feed_forward.w13" }, { factor = 8, low = 1, high = 4, context = 8192 }
-- https://huggingface.co/meta-llama: config.json of each
local sizes = {
  ["3.1-8b"] = { dim = 4096, layers = 32, heads = 32, kv_heads = 8, hidden = 14336 },
  ["3.1-70b"] = { dim = 8192, layers = 80, heads = 64, kv_heads = 8, hidden = 28672 },
  ["3.1-405b"] = { dim = 16384, layers = 126, heads = 128, kv_heads = 8, hidden = 53248 },
  ["3.2-1b"] = { dim = 2048, layers = 16, heads = 32, kv_heads = 8, hidden = 8192, tied = true,
    rope_scaling = { factor = 32, low = 1, high = 4, context = 8192 } },
  ["tiny"] = { dim = 64, layers = 2, heads = 4, kv_heads = 2, hidden = 160, vocab = 256,
    theta = 10000.0, rope_scaling = false },
}
local defaults = { vocab = 128256, head_dim = false, theta = 500000.0, rope_scaling = llama3_1,
  eps = 1e-5, tied = false, fused = false, label_smoothing = 0, z_loss = 0 }

local function feed_forward(c, out_init)
  return c.fused and gate_up(c.dim, c.hidden, { "w13", "w2" }, out_init) or nn.module {
    w1 = nn.linear(c.dim, c.hidden),
    w3 = nn.linear(c.dim, c.hidden),
    w2 = nn.linear(c.hidden, c.dim, { init = out_init }),
    forward = function(m, x) return m.w2(nn.silu(m.w1(x)) * m.w3(x)) end,
  }
end

local function block(c)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    attention_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    attention = nn.attention {
      dim = c.dim, heads = c.heads, kv_heads = c.kv_heads, head_dim = c.head_dim or nil,
      rope_theta = c.theta, rope_scaling = c.rope_scaling, fused = c.fused, out_init = out_init,
    },
    ffn_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    feed_forward = feed_forward(c, out_init),
    tp_col = c.fused and fused_columns or { "attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3" },
    tp_row = { "attention.wo", "feed_forward.w2" },
    forward = function(m, x)
      local h = x + m.attention(m.attention_norm(x))
      return h + m.feed_forward(m.ffn_norm(h))
    end,
  }
end

local function build(c)
  local embed = nn.embedding(c.vocab, c.dim)
  return nn.module {
    tok_embeddings = embed,
    layers = nn.list(c.layers, function() return block(c) end),
    norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    output = nn.linear(c.dim, c.vocab, { weight = c.tied and embed or nil }),
    tp_vocab = { "tok_embeddings", "output" },
    forward = function(m, tokens, labels)
      local x = m.tok_embeddings(tokens)
      for _, layer in ipairs(m.layers) do x = layer(x) end
      return nn.cross_entropy(m.output(m.norm(x)), labels,
        { label_smoothing = c.label_smoothing, z_loss = c.z_loss })
    end,
  }
end

return function(what)
  local name, config = nn.family("llama", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = nn.small }
end
