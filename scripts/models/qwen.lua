-- Qwen2.5 (biases on q, k, v) and Qwen3 (no biases; each query and key head is normalised): require "models.qwen" "3-8b", or "3-30b-a3b"
-- (mixture of experts), or { size = "3-8b", fused = true } to change parts of it. With fused, q, k, v are one weight, and so are w1, w3.
local nn, gate_up = require "tandem.nn", require "models.gate_up"

-- https://huggingface.co/Qwen: config.json of each
local sizes = {
  ["2.5-0.5b"] = { dim = 896, layers = 24, heads = 14, kv_heads = 2, hidden = 4864, tied = true },
  ["2.5-1.5b"] = { dim = 1536, layers = 28, heads = 12, kv_heads = 2, hidden = 8960, tied = true },
  ["2.5-3b"] = { dim = 2048, layers = 36, heads = 16, kv_heads = 2, hidden = 11008, tied = true },
  ["2.5-7b"] = { dim = 3584, layers = 28, heads = 28, kv_heads = 4, hidden = 18944, vocab = 152064 },
  ["2.5-14b"] = { dim = 5120, layers = 48, heads = 40, kv_heads = 8, hidden = 13824, vocab = 152064 },
  ["2.5-32b"] = { dim = 5120, layers = 64, heads = 40, kv_heads = 8, hidden = 27648, vocab = 152064 },
  ["2.5-72b"] = { dim = 8192, layers = 80, heads = 64, kv_heads = 8, hidden = 29568, vocab = 152064 },
  ["3-0.6b"] = { dim = 1024, layers = 28, heads = 16, kv_heads = 8, hidden = 3072, tied = true },
  ["3-1.7b"] = { dim = 2048, layers = 28, heads = 16, kv_heads = 8, hidden = 6144, tied = true },
  ["3-4b"] = { dim = 2560, layers = 36, heads = 32, kv_heads = 8, hidden = 9728, tied = true },
  ["3-8b"] = { dim = 4096, layers = 36, heads = 32, kv_heads = 8, hidden = 12288 },
  ["3-14b"] = { dim = 5120, layers = 40, heads = 40, kv_heads = 8, hidden = 17408 },
  ["3-32b"] = { dim = 5120, layers = 64, heads = 64, kv_heads = 8, hidden = 25600 },
  ["3-30b-a3b"] = { dim = 2048, layers = 48, heads = 32, kv_heads = 4, hidden = 768, experts = 128, top_k = 8 },
  ["3-235b-a22b"] = { dim = 4096, layers = 94, heads = 64, kv_heads = 4, hidden = 1536, experts = 128, top_k = 8 },
  ["3-moe-tiny"] = { dim = 64, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, hidden = 32, experts = 4, top_k = 2, vocab = 256 },
  ["2.5-tiny"] = { dim = 64, layers = 2, heads = 4, kv_heads = 2, hidden = 160, vocab = 256, tied = true },
  ["3-tiny"] = { dim = 64, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, hidden = 160, vocab = 256 },
}
for name, size in pairs(sizes) do
  local is_3 = name:sub(1, 2) == "3-"
  size.qkv_bias, size.qk_norm = not is_3, is_3
  if is_3 then size.head_dim = size.head_dim or 128 end
end
local fused_columns, defaults = { "attention.wqkv", "feed_forward.w13" }, { vocab = 151936, head_dim = false, theta = 1e6, eps = 1e-6, tied = false, fused = false,
  rope_scaling = false, experts = false, top_k = 8, capacity_factor = 1.25, aux_loss = 0.001 }

local function feed_forward(c, out_init)
  if c.experts then
    return nn.moe { dim = c.dim, hidden = c.hidden, experts = c.experts, top_k = c.top_k,
      capacity_factor = c.capacity_factor, aux_loss = c.aux_loss, out_init = out_init }
  end
  return c.fused and gate_up(c.dim, c.hidden, { "w13", "w2" }, out_init) or nn.module {
    w1 = nn.linear(c.dim, c.hidden),
    w3 = nn.linear(c.dim, c.hidden),
    w2 = nn.linear(c.hidden, c.dim, { init = out_init }),
    forward = function(m, x) return m.w2(nn.silu(m.w1(x)) * m.w3(x)) end,
  }
end

local function block(c)
  if c.experts and c.fused then
    error "models.qwen: experts have w1 and w3 of their own: leave out fused"
  end
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    attention_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    attention = nn.attention {
      dim = c.dim, heads = c.heads, kv_heads = c.kv_heads, head_dim = c.head_dim or nil,
      bias = c.qkv_bias, out_bias = false, qk_norm = c.qk_norm and { eps = c.eps },
      rope_theta = c.theta, rope_scaling = c.rope_scaling or nil, fused = c.fused, out_init = out_init,
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
      return nn.cross_entropy(m.output(m.norm(m.layers(m.tok_embeddings(tokens)))), labels)
    end,
  }
end

return function(what)
  local name, config = nn.family("qwen", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = nn.small }
end
