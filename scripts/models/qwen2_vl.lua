-- Qwen2-VL: require "models.qwen2_vl" "7b", or { size = "2b", before = 15, rows = 32, columns = 48
-- } to change parts of it; `vision` changes parts of the encoder. The encoder has no class token.
-- It reads the image's rows x columns patches; the position of a patch is its row and column.
-- Patches are ordered by squares of four: the first square, then the square to its right, and so
-- on. A square becomes one token with the decoder's features. The image's tokens come before the
-- text, or after its first `before` tokens. In the decoder, a position is a time, a row and a
-- column. The loss counts the text alone, and batch.seq is the text's length.
local nn, image_text = require "tandem.nn", require "models.image_text"

-- https://huggingface.co/Qwen/Qwen2-VL-2B-Instruct, -7B-Instruct and -72B-Instruct: config.json of each
local sizes = {
  ["2b"] = { dim = 1536, layers = 28, heads = 12, kv_heads = 2, hidden = 8960, tied = true },
  ["7b"] = { dim = 3584, layers = 28, heads = 28, kv_heads = 4, hidden = 18944, vocab = 152064 },
  ["72b"] = { dim = 8192, layers = 80, heads = 64, kv_heads = 8, hidden = 29568, vocab = 152064 },
  ["tiny"] = { dim = 48, layers = 2, heads = 4, kv_heads = 2, hidden = 80, vocab = 64, rows = 4, columns = 8, sections = { 2, 2, 2 },
    vision = { dim = 32, layers = 2, heads = 4, patch = 4, channels = 6, eps = 1e-6, head_dim = false, hidden = false } },
}
-- A still image counts as two equal frames, so each of its points has 2 x 3 numbers.
local encoder_of_all = { dim = 1280, layers = 32, heads = 16, patch = 14, channels = 6, eps = 1e-6, head_dim = false, hidden = false }
local defaults = { vocab = 151936, head_dim = false, theta = 1e6, eps = 1e-6, tied = false, before = 0, rows = 32, columns = 32,
  sections = { 16, 24, 24 }, vision = encoder_of_all }
local side = 2 -- side of the square of patches that become one token

local function vision_block(c, image)
  local hidden, out_init = c.hidden or 4 * c.dim, nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    norm1 = nn.layernorm(c.dim, { eps = c.eps }),
    attention = nn.attention { dim = c.dim, heads = c.heads, head_dim = c.head_dim or nil, causal = false, bias = true, rope_theta = 10000.0,
      rope_image = { rows = image.rows, columns = image.columns, block = side }, out_init = out_init },
    norm2 = nn.layernorm(c.dim, { eps = c.eps }),
    up = nn.linear(c.dim, hidden, { bias = true }), down = nn.linear(hidden, c.dim, { bias = true, init = out_init }),
    tp_col = { "attention.wq", "attention.wk", "attention.wv", "up" }, tp_row = { "attention.wo", "down" },
    forward = function(m, x)
      x = x + m.attention(m.norm1(x))
      return x + m.down(nn.quick_gelu(m.up(m.norm2(x))))
    end,
  }
end

local function encoder(c, image)
  return nn.module {
    patches = nn.linear(c.channels * c.patch * c.patch, c.dim),
    blocks = nn.list(c.layers, function() return vision_block(c, image) end),
    forward = function(m)
      return m.blocks(m.patches(nn.image { height = image.rows * c.patch, width = image.columns * c.patch, patch = c.patch,
        channels = c.channels }))
    end,
  }
end

local function merger(c, dim)
  local merged = side * side * c.dim
  return nn.module {
    norm = nn.layernorm(c.dim, { eps = c.eps }),
    first = nn.linear(merged, merged, { bias = true }), last = nn.linear(merged, dim, { bias = true }),
    fsdp2_shard = true,
    forward = function(m, x) return m.last(nn.gelu(m.first(nn.merge_tokens(m.norm(x), side * side)))) end,
  }
end

local function block(c)
  return image_text.block(c, { kv_heads = c.kv_heads, bias = true, out_bias = false, rope_image = { rows = c.rows // side,
    columns = c.columns // side, first = c.before, sections = c.sections } })
end

local function build(c)
  nn.within("qwen2_vl", "rows", c.rows, side, 4096, side)
  nn.within("qwen2_vl", "columns", c.columns, side, 4096, side)
  nn.within("qwen2_vl", "before", c.before, 0, 1 << 30)
  local embed = nn.embedding(c.vocab, c.dim)
  return nn.module {
    encoder = encoder(c.vision, c), merger = merger(c.vision, c.dim),
    embed = embed, layers = nn.list(c.layers, function() return block(c) end), norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    head = nn.linear(c.dim, c.vocab, { weight = c.tied and embed or nil }), tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      local x = image_text.decode("qwen2_vl", m.layers, m.embed(tokens), m.merger(m.encoder()), c.before)
      return nn.cross_entropy(m.head(m.norm(x)), labels)
    end,
  }
end

local function shrink(c, mesh)
  return nn.small(c, mesh, { before = math.min(c.before, 2), rows = 4, columns = 2 * math.max(2, mesh.tp), head_dim = 8, sections = { 2, 1, 1 },
    vision = nn.with(c.vision, { dim = 9 * mesh.multiple, layers = 2, heads = 2 * mesh.tp, head_dim = 4, hidden = 5 * mesh.tp, patch = 4,
      channels = 2 }) })
end

return function(what)
  local name, config = nn.family("qwen2_vl", what, sizes, defaults, { vision = true })
  return { name = name, config = config, build = build, shrink = shrink }
end
