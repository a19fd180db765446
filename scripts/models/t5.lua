-- T5: require "models.t5" "base" (version 1.0), "v1.1-base", or { size = "base", source = 512 } to
-- change parts of it. A sequence has the encoder's `source` tokens, then the decoder's tokens. Only
-- the decoder's have labels. All layers of the encoder share one table of distances; all layers of
-- the decoder share another. Scores are not divided by the root of head_dim. Version 1.1 has a
-- gated GELU, and its head is not tied to the embedding.
local nn = require "tandem.nn"

-- https://huggingface.co/google-t5, https://huggingface.co/google (v1.1, flan): config.json of each
local sizes = {
  ["small"] = { dim = 512, layers = 6, heads = 8, hidden = 2048 },
  ["base"] = { dim = 768, layers = 12, heads = 12, hidden = 3072 },
  ["large"] = { dim = 1024, layers = 24, heads = 16, hidden = 4096 },
  ["3b"] = { dim = 1024, layers = 24, heads = 32, head_dim = 128, hidden = 16384 },
  ["11b"] = { dim = 1024, layers = 24, heads = 128, head_dim = 128, hidden = 65536 },
  ["v1.1-small"] = { dim = 512, layers = 8, heads = 6, hidden = 1024, gated = true },
  ["v1.1-base"] = { dim = 768, layers = 12, heads = 12, hidden = 2048, gated = true },
  ["v1.1-large"] = { dim = 1024, layers = 24, heads = 16, hidden = 2816, gated = true },
  ["v1.1-xl"] = { dim = 2048, layers = 24, heads = 32, hidden = 5120, gated = true },
  ["v1.1-xxl"] = { dim = 4096, layers = 24, heads = 64, hidden = 10240, gated = true },
  ["tiny"] = { dim = 64, layers = 2, heads = 4, head_dim = 16, hidden = 96, vocab = 256, source = 20 },
  ["v1.1-tiny"] = { dim = 64, layers = 2, heads = 4, head_dim = 16, hidden = 96, vocab = 256, source = 20, gated = true },
}
local defaults = { vocab = 32128, head_dim = 64, eps = 1e-6, source = 512, gated = false, buckets = 32, distance = 128 }

local function feed_forward(c, out_init)
  local up, down = nn.linear(c.dim, c.hidden), nn.linear(c.hidden, c.dim, { init = out_init })
  if not c.gated then
    return nn.module { wi = up, wo = down, tp_col = "wi", tp_row = "wo",
      forward = function(m, x) return m.wo(nn.relu(m.wi(x))) end }
  end
  return nn.module { wi_0 = up, wi_1 = nn.linear(c.dim, c.hidden), wo = down, tp_col = { "wi_0", "wi_1" }, tp_row = "wo",
    forward = function(m, x) return m.wo(nn.gelu(m.wi_0(x)) * m.wi_1(x)) end }
end

local function attention(c, causal, out_init)
  return nn.attention { dim = c.dim, heads = c.heads, head_dim = c.head_dim, causal = causal, scale = 1.0, out_init = out_init }
end

local function block(c, decodes)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  local function norm() return nn.rmsnorm(c.dim, { eps = c.eps }) end
  local columns, rows = { "attention.wq", "attention.wk", "attention.wv" }, { "attention.wo" }
  if decodes then
    for _, name in ipairs { "cross.wq", "cross.wk", "cross.wv" } do columns[#columns + 1] = name end
    rows[2] = "cross.wo"
  end
  return nn.block {
    attention_norm = norm(), attention = attention(c, decodes, out_init), mlp_norm = norm(),
    cross_norm = decodes and norm() or nil, cross = decodes and attention(c, false, out_init) or nil,
    mlp = feed_forward(c, out_init), tp_col = columns, tp_row = rows,
    forward = function(m, x, distances, memory)
      local h = x + m.attention(m.attention_norm(x), { table = distances })
      if memory then h = h + m.cross(m.cross_norm(h), { memory = memory }) end
      return h + m.mlp(m.mlp_norm(h))
    end,
  }
end

local function stack(c, decodes)
  return nn.module {
    distances = nn.distance_table { heads = c.heads, buckets = c.buckets, distance = c.distance },
    layers = nn.list(c.layers, function() return block(c, decodes) end),
    norm = nn.rmsnorm(c.dim, { eps = c.eps }), tp_col = "distances",
    forward = function(m, x, memory)
      local distances = m.distances()
      for _, layer in ipairs(m.layers) do x = layer(x, distances, memory) end
      return m.norm(x)
    end,
  }
end

local function build(c)
  local embed = nn.embedding(c.vocab, c.dim)
  return nn.module {
    embed = embed, encoder = stack(c, false), decoder = stack(c, true),
    head = nn.linear(c.dim, c.vocab, { weight = not c.gated and embed or nil }),
    tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      local target = tokens.shape[2] - nn.within("t5", "source", c.source, 1, tokens.shape[2] - 1) -- the decoder's tokens
      local memory = m.encoder(m.embed(nn.span(tokens, 0, c.source)))
      local x = m.decoder(m.embed(nn.span(tokens, c.source, target)), memory)
      if not c.gated then x = nn.scale(x, 1 / math.sqrt(c.dim)) end
      return nn.cross_entropy(m.head(x), nn.span(labels, c.source, target))
    end,
  }
end

local function shrink(c, mesh)
  return nn.small(c, mesh, { heads = mesh.tp * 2, seq = 9 * mesh.tp, source = 5 * mesh.tp, buckets = 8, distance = 12 })
end

return function(what)
  local name, config = nn.family("t5", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
