-- Vision transformer: require "models.vit" "b16", or { size = "b16", classes = 10 } to change parts
-- of it. Each image has one label, so the batch is, for example, { global = 64, seq = 1 }.
local nn = require "tandem.nn"
local encoder = require "models.vision_encoder"

-- https://huggingface.co/google/vit-base-patch16-224 and others: config.json of each
local sizes = {
  ["b16"] = { dim = 768, layers = 12, heads = 12 },
  ["b32"] = { dim = 768, layers = 12, heads = 12, patch = 32 },
  ["l16"] = { dim = 1024, layers = 24, heads = 16 },
  ["h14"] = { dim = 1280, layers = 32, heads = 16, patch = 14 },
  ["tiny"] = { dim = 32, layers = 2, heads = 4, image = 16, patch = 4, classes = 10 },
}
local defaults = { image = 224, patch = 16, channels = 3, classes = 1000, eps = 1e-12, clip = false }

local function build(c)
  return nn.module {
    encoder = encoder(c), head = nn.linear(c.dim, c.classes, { bias = true }), tp_vocab = "head",
    forward = function(m, _, labels)
      return nn.cross_entropy(m.head(nn.span(m.encoder(), 0, 1)), labels)
    end,
  }
end

local function shrink(c, mesh)
  return nn.small(c, mesh, { seq = 1, image = 8, patch = 4, channels = 2, classes = 7 * mesh.tp, eps = 1e-5,
    heads = 2 * mesh.tp, head_dim = 4, hidden = 5 * mesh.tp })
end

return function(what)
  local name, config = nn.family("vit", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
