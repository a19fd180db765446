-- GPT-2: require "models.gpt2" "124m", or { size = "124m", layers = 2 } to change parts of it.
-- Heads have 64 elements, positions are learned, and the head shares the embedding's weight.
local nn = require "tandem.nn"

-- https://huggingface.co/openai-community: config.json of gpt2, -medium, -large, -xl
local sizes = {
  ["124m"] = { dim = 768, layers = 12, heads = 12 },
  ["350m"] = { dim = 1024, layers = 24, heads = 16 },
  ["774m"] = { dim = 1280, layers = 36, heads = 20 },
  ["1.5b"] = { dim = 1600, layers = 48, heads = 25 },
  ["tiny"] = { dim = 64, layers = 2, heads = 4, vocab = 256, positions = 256 },
}
-- dropout: the probability for scores, residuals and embedding. fused: one weight makes q, k and v. bias: products have biases.
local defaults = { vocab = 50257, positions = 1024, head_dim = false, hidden = false, eps = 1e-5,
  fused = false, bias = true, dropout = 0, label_smoothing = 0, z_loss = 0 }

local function block(c)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  local hidden = c.hidden or 4 * c.dim
  return nn.block {
    ln_1 = nn.layernorm(c.dim, { eps = c.eps }),
    attention = nn.attention { dim = c.dim, heads = c.heads, head_dim = c.head_dim or nil, bias = c.bias,
      fused = c.fused, dropout = c.dropout, out_init = out_init },
    ln_2 = nn.layernorm(c.dim, { eps = c.eps }),
    mlp = nn.module {
      up = nn.linear(c.dim, hidden, { bias = c.bias }),
      down = nn.linear(hidden, c.dim, { bias = c.bias, init = out_init }),
      forward = function(m, x) return m.down(nn.gelu(m.up(x))) end,
    },
    tp_col = c.fused and { "attention.wqkv", "mlp.up" } or { "attention.wq", "attention.wk", "attention.wv", "mlp.up" },
    tp_row = { "attention.wo", "mlp.down" },
    forward = function(m, x)
      local h = x + nn.dropout(m.attention(m.ln_1(x)), c.dropout)
      return h + nn.dropout(m.mlp(m.ln_2(h)), c.dropout)
    end,
  }
end

local function build(c)
  local wte = nn.embedding(c.vocab, c.dim)
  return nn.module {
    wte = wte,
    wpe = nn.position(c.positions, c.dim),
    layers = nn.list(c.layers, function() return block(c) end),
    ln_f = nn.layernorm(c.dim, { eps = c.eps }),
    head = nn.linear(c.dim, c.vocab, { weight = wte }),
    tp_vocab = { "wte", "head" },
    forward = function(m, tokens, labels)
      local x = nn.dropout(m.wpe(m.wte(tokens)), c.dropout)
      for _, layer in ipairs(m.layers) do x = layer(x) end
      return nn.cross_entropy(m.head(m.ln_f(x)), labels,
        { label_smoothing = c.label_smoothing, z_loss = c.z_loss })
    end,
  }
end

local function shrink(c, mesh)
  local small = nn.small(c, mesh, { head_dim = 3 })
  return nn.with(small, { positions = small.seq })
end

return function(what)
  local name, config = nn.family("gpt2", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
