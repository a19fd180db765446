-- The transformer of WXFormer (miles-credit): levels of growing width, whose blocks have short
-- attention, long attention and feed-forward. Use: require "models.wxformer" "tiny", or { size =
-- "tiny", depth = { 2, 2 } } to change parts of it. It reads tokens, not a grid. A linear map
-- replaces the strided convolution between levels, attention covers the whole sequence and not
-- windows, and there is no decoder. As in miles-credit, a level is the unit of sharding and
-- checkpointing. use_spectral_norm divides the weight of each linear, also of the head, by its
-- norm.
local nn = require "tandem.nn"

-- dim and depth: the width and the number of layers of each level; a level has dim / dim_head heads
local sizes = {
  ["tiny"] = { dim = { 16, 32, 64, 64 }, depth = { 1, 1, 1, 1 }, dim_head = 4 },
  ["base"] = { dim = { 64, 128, 256, 512 }, depth = { 2, 2, 8, 2 }, dim_head = 32, vocab = 32000 },
}
local defaults = { vocab = 256, mult = 4, dropout = 0.0, heads = false, hidden = false, eps = 1e-5,
  use_spectral_norm = false }

local function attention(c, dim)
  return nn.module {
    norm = nn.layernorm(dim, { eps = c.eps }),
    attend = nn.attention { dim = dim, heads = c.heads or dim // c.dim_head, head_dim = c.dim_head, causal = false,
      out_bias = true, spectral_norm = c.use_spectral_norm },
    tp_col = { "attend.wq", "attend.wk", "attend.wv" }, tp_row = "attend.wo",
    forward = function(m, x) return m.attend(m.norm(x)) end,
  }
end

local function feed_forward(c, dim)
  local hidden = c.hidden or c.mult * dim
  return nn.module {
    norm = nn.layernorm(dim, { eps = c.eps }),
    up = nn.linear(dim, hidden, { bias = true, spectral_norm = c.use_spectral_norm }),
    down = nn.linear(hidden, dim, { bias = true, spectral_norm = c.use_spectral_norm }),
    tp_col = "up", tp_row = "down",
    forward = function(m, x) return m.down(nn.dropout(nn.gelu(m.up(m.norm(x))), c.dropout)) end,
  }
end

local function layer(c, dim)
  return nn.module {
    short = attention(c, dim), short_ffn = feed_forward(c, dim),
    long = attention(c, dim), long_ffn = feed_forward(c, dim),
    forward = function(m, x)
      x = x + m.short(x)
      x = x + m.short_ffn(x)
      x = x + m.long(x)
      return x + m.long_ffn(x)
    end,
  }
end

local function level(c, index)
  local dim, before = c.dim[index], c.dim[index - 1]
  return nn.block {
    embed = before and nn.linear(before, dim, { bias = true, spectral_norm = c.use_spectral_norm }) or nil,
    layers = nn.list(c.depth[index], function() return layer(c, dim) end),
    fsdp2_shard = true,
    forward = function(m, x)
      if before then x = m.embed(x) end
      return m.layers(x)
    end,
  }
end

local function build(c)
  local n = #c.dim
  return nn.module {
    tokens = nn.embedding(c.vocab, c.dim[1]),
    levels = nn.list(n, function(i) return level(c, i + 1) end),
    norm = nn.layernorm(c.dim[n], { eps = c.eps }),
    head = nn.linear(c.dim[n], c.vocab, { spectral_norm = c.use_spectral_norm }),
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.norm(m.levels(m.tokens(tokens)))), labels)
    end,
  }
end

-- The smallest model has at most two levels for each stage, with one layer each. A width is a prime times mesh.multiple.
local function shrink(c, mesh)
  local dim, depth = {}, {}
  for i = 1, math.min(#c.dim, 2 * mesh.stages) do
    dim[i], depth[i] = (i % 2 == 0 and 11 or 7) * mesh.multiple, 1
  end
  return nn.with(c, { dim = dim, depth = depth, heads = mesh.tp * mesh.cp, dim_head = 3, hidden = 5 * mesh.tp,
    vocab = 29, seq = 5 * mesh.tp * mesh.cp * (mesh.cp > 1 and 2 or 1) })
end

return function(what)
  local name, config = nn.family("wxformer", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
