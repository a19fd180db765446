-- LLaVA: require "models.llava" "1.5-7b", or { size = "1.5-7b", before = 35 } to change parts of
-- it. CLIP's encoder turns the image into 576 tokens. A projector of two layers gives them the
-- decoder's features. They come before the text, or after its first `before` tokens. The loss
-- counts the text alone, and batch.seq is the text's length. LLaVA reads the output of CLIP's last
-- block but one, without the class token. The last block and the norm after it are never computed,
-- so this model leaves them out.
local nn = require "tandem.nn"
local encoder, image_text = require "models.vision_encoder", require "models.image_text"

-- https://huggingface.co/llava-hf/llava-1.5-7b-hf, llava-1.5-13b-hf: config.json of each, and
-- https://huggingface.co/openai/clip-vit-large-patch14-336: "vision_config"
local sizes = {
  ["1.5-7b"] = { dim = 4096, layers = 32, heads = 32, hidden = 11008 },
  ["1.5-13b"] = { dim = 5120, layers = 40, heads = 40, hidden = 13824 },
  ["tiny"] = { dim = 32, layers = 2, heads = 4, hidden = 48, vocab = 64,
    vision = { dim = 24, layers = 3, heads = 4, image = 16, patch = 4, channels = 3, eps = 1e-5, clip = true,
      head_dim = false, hidden = false } },
}
local clip = { dim = 1024, layers = 24, heads = 16, image = 336, patch = 14, channels = 3, eps = 1e-5, clip = true, head_dim = false,
  hidden = false }
local defaults = { vocab = 32064, head_dim = false, theta = 10000.0, eps = 1e-5, before = 0, vision = clip }

local function build(c)
  nn.within("llava", "before", c.before, 0, 1 << 30)
  local v = c.vision
  local side = v.image // nn.within("llava", "vision.patch", v.patch, 1, 65536)
  return nn.module {
    encoder = encoder(v, v.layers - 1),
    projector = nn.module {
      first = nn.linear(v.dim, c.dim, { bias = true }), last = nn.linear(c.dim, c.dim, { bias = true }),
      fsdp2_shard = true,
      forward = function(m, x) return m.last(nn.gelu(m.first(x))) end,
    },
    embed = nn.embedding(c.vocab, c.dim), layers = nn.list(c.layers, function() return image_text.block(c, {}) end),
    norm = nn.rmsnorm(c.dim, { eps = c.eps }), head = nn.linear(c.dim, c.vocab), tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      local x, image = m.embed(tokens), m.projector(nn.span(m.encoder(), 1, side * side))
      x = image_text.decode("llava", m.layers, x, image, c.before)
      return nn.cross_entropy(m.head(m.norm(x)), labels)
    end,
  }
end

local function shrink(c, mesh)
  return nn.small(c, mesh, { before = math.min(c.before, 2), vision = nn.with(c.vision, { dim = 9 * mesh.multiple, layers = 3,
    heads = 2 * mesh.tp, head_dim = 4, hidden = 5 * mesh.tp, image = 4 * math.max(2, mesh.tp), patch = 4, channels = 2 }) })
end

return function(what)
  local name, config = nn.family("llava", what, sizes, defaults, { vision = true })
  return { name = name, config = config, build = build, shrink = shrink }
end
