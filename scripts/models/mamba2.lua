-- Mamba-2: require "models.mamba2" "2.7b", or { size = "2.7b", layers = 4 } to change parts of it. A layer is a
-- norm and a mixer, with a residual connection around both. The head shares the embedding's weight, except in Codestral.
local nn = require "tandem.nn"

-- https://huggingface.co/state-spaces: config.json of each (vocabularies are padded to multiples of 16)
-- https://huggingface.co/mistralai/Mamba-Codestral-7B-v0.1: config.json
local sizes = {
  ["130m"] = { dim = 768, layers = 24 },
  ["370m"] = { dim = 1024, layers = 48 },
  ["780m"] = { dim = 1536, layers = 48 },
  ["1.3b"] = { dim = 2048, layers = 48 },
  ["2.7b"] = { dim = 2560, layers = 64 },
  ["codestral-7b"] = { dim = 4096, layers = 64, groups = 8, vocab = 32768, tied = false },
  ["tiny"] = { dim = 32, layers = 2, head_dim = 8, state = 16, groups = 2, vocab = 256 },
}
for _, size in pairs(sizes) do size.heads = 2 * size.dim // (size.head_dim or 64) end
local defaults = { vocab = 50288, head_dim = 64, groups = 1, state = 128, window = 4, chunk = 256, eps = 1e-5, tied = true }

local function block(c)
  return nn.block {
    norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    mixer = nn.mamba2 { dim = c.dim, heads = c.heads, head_dim = c.head_dim, groups = c.groups, state = c.state,
      window = c.window, chunk = c.chunk, eps = c.eps, out_init = nn.normal(0, 0.02 / math.sqrt(c.layers)) },
    forward = function(m, x) return x + m.mixer(m.norm(x)) end,
  }
end

local function build(c)
  local embed = nn.embedding(c.vocab, c.dim)
  return nn.module {
    embed = embed, layers = nn.list(c.layers, function() return block(c) end), norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    head = nn.linear(c.dim, c.vocab, { weight = c.tied and embed or nil }), tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.norm(m.layers(m.embed(tokens)))), labels)
    end,
  }
end

local function shrink(c, mesh)
  local heads, groups = nn.small_scan_heads(c.heads, c.groups, mesh)
  return nn.small(c, mesh, { heads = heads, groups = groups, head_dim = 3, state = 4 * mesh.cp, window = 3 })
end

return function(what)
  local name, config = nn.family("mamba2", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
