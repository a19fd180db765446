-- Mixtral: require "models.mixtral" "8x7b", or { size = "8x7b", capacity_factor = "all" } to change
-- parts of it. Attention is Llama's. In each layer, a token uses `top_k` of `experts` feed-forward
-- blocks. capacity_factor and aux_loss (of each layer) are options of nn.moe.
local nn = require "tandem.nn"

-- https://huggingface.co/mistralai: config.json of each
local sizes = {
  ["8x7b"] = { dim = 4096, layers = 32, heads = 32, kv_heads = 8, hidden = 14336 },
  ["8x22b"] = { dim = 6144, layers = 56, heads = 48, kv_heads = 8, hidden = 16384, vocab = 32768 },
  ["tiny"] = { dim = 64, layers = 2, heads = 4, kv_heads = 2, hidden = 96, experts = 4, vocab = 256, theta = 10000.0 },
}
local defaults = { vocab = 32000, head_dim = false, theta = 1e6, eps = 1e-5, experts = 8, top_k = 2, capacity_factor = 1.25, aux_loss = 0.001 }

local function block(c)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    attention_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    attention = nn.attention { dim = c.dim, heads = c.heads, kv_heads = c.kv_heads,
      head_dim = c.head_dim or nil, rope_theta = c.theta, out_init = out_init },
    ffn_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    feed_forward = nn.moe { dim = c.dim, hidden = c.hidden, experts = c.experts, top_k = c.top_k,
      capacity_factor = c.capacity_factor, aux_loss = c.aux_loss, out_init = out_init },
    tp_col = { "attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3" },
    tp_row = { "attention.wo", "feed_forward.w2" },
    forward = function(m, x)
      local h = x + m.attention(m.attention_norm(x))
      return h + m.feed_forward(m.ffn_norm(h))
    end,
  }
end

local function build(c)
  return nn.module {
    tok_embeddings = nn.embedding(c.vocab, c.dim),
    layers = nn.list(c.layers, function() return block(c) end),
    norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    output = nn.linear(c.dim, c.vocab),
    tp_vocab = { "tok_embeddings", "output" },
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.output(m.norm(m.layers(m.tok_embeddings(tokens)))), labels)
    end,
  }
end

return function(what)
  local name, config = nn.family("mixtral", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = nn.small }
end
