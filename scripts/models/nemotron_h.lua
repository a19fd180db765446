-- Nemotron-H, a hybrid of state-space layers (M), attention (*) and MLPs (-): require "models.nemotron_h" "8b", or { size
-- = "8b", pattern = "M-M*-", layers = 5 } to change parts of it. Each letter is a layer: a norm and one mixer, with a
-- residual connection around both. A pattern shorter than `layers` is repeated. Attention has no positions. The MLPs square a ReLU.
local nn = require "tandem.nn"

-- https://huggingface.co/nvidia: config.json of each
local sizes = {
  ["8b"] = { dim = 4096, hidden = 21504, pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-" },
  ["nano-9b-v2"] = { dim = 4480, hidden = 15680, heads = 40, scan_dim = 80,
    pattern = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-" },
  ["nano-12b-v2"] = { dim = 5120, hidden = 20480, heads = 40, scan_dim = 80,
    pattern = "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-" },
  ["tiny"] = { dim = 48, hidden = 96, heads = 4, kv_heads = 2, head_dim = 12, scan_heads = 8, scan_dim = 6, groups = 2,
    state = 16, vocab = 256, pattern = "*M-M-" },
}
for _, size in pairs(sizes) do size.layers = #size.pattern end
local defaults = { heads = 32, kv_heads = 8, head_dim = 128, scan_heads = 128, scan_dim = 64, groups = 8, state = 128,
  window = 4, chunk = 128, vocab = 131072, eps = 1e-5 }

local function mlp(c, out_init)
  return nn.module { up = nn.linear(c.dim, c.hidden), down = nn.linear(c.hidden, c.dim, { init = out_init }),
    forward = function(m, x) return m.down(nn.relu2(m.up(x))) end }
end

local kinds = {
  M = function(c, out_init)
    return nn.mamba2 { dim = c.dim, heads = c.scan_heads, head_dim = c.scan_dim, groups = c.groups, state = c.state,
      window = c.window, chunk = c.chunk, eps = c.eps, out_init = out_init }
  end,
  ["*"] = function(c, out_init)
    return nn.attention { dim = c.dim, heads = c.heads, kv_heads = c.kv_heads, head_dim = c.head_dim, out_init = out_init },
      { "mixer.wq", "mixer.wk", "mixer.wv" }, "mixer.wo"
  end,
  ["-"] = function(c, out_init) return mlp(c, out_init), { "mixer.up" }, "mixer.down" end,
}

local letters = { M = "state space", ["*"] = "attention", ["-"] = "MLP" }

local function block(c, index)
  local letter = c.pattern:sub(index + 1, index + 1)
  local mixer, cut, row = kinds[letter](c, nn.normal(0, 0.02 / math.sqrt(#c.pattern)))
  return nn.block {
    norm = nn.rmsnorm(c.dim, { eps = c.eps }), mixer = mixer, tp_col = cut, tp_row = row,
    forward = function(m, x) return x + m.mixer(m.norm(x)) end,
  }
end

local function build(c)
  return nn.module {
    embed = nn.embedding(c.vocab, c.dim), layers = nn.list(#c.pattern, function(index) return block(c, index) end),
    norm = nn.rmsnorm(c.dim, { eps = c.eps }), head = nn.linear(c.dim, c.vocab), tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.norm(m.layers(m.embed(tokens)))), labels)
    end,
  }
end

-- The smallest model of the same structure. It has one layer of each kind in the pattern, in the
-- order of the pattern. These layers are repeated until every stage has one.
local function shrink(c, mesh)
  local kept, seen = "", {}
  for letter in c.pattern:gmatch "." do
    if not seen[letter] then kept, seen[letter] = kept .. letter, true end
  end
  local times = math.max(1, (2 * mesh.stages + #kept - 1) // #kept)
  local pattern = #c.pattern <= 2 * mesh.stages and c.pattern or kept:rep(times)
  local heads, groups = nn.small_scan_heads(c.scan_heads, c.groups, mesh)
  return nn.small(c, mesh, { layers = #pattern, pattern = pattern, scan_heads = heads, groups = groups, scan_dim = 3,
    state = 4 * mesh.cp, window = 3 })
end

return function(what)
  local name, config = nn.family("nemotron_h", what, sizes, defaults)
  if type(what) == "table" and what.pattern and not what.layers then config.layers = nil end
  config.pattern = nn.layer_pattern("nemotron_h", config, letters)
  config.layers = #config.pattern
  return { name = name, config = config, build = build, shrink = shrink }
end
