-- Gemma 2 and 3 (text): require "models.gemma" "3-1b", or { size = "3-1b", layers = 4 } to change
-- parts of it. Attention and MLP each have a norm before and after. The MLP is a gated GELU, the head
-- is tied, and embeddings are multiplied by sqrt(dim). Gemma 3 normalises each query and key head. A
-- norm multiplies by its weight w, which starts at 1; Gemma's own code multiplies by 1 + w. The
-- function is the same, but weight decay pulls w to 0, and 1 + w to 1. Local layers see a window of
-- keys: every second layer of Gemma 2, five of six of Gemma 3. Gemma 2 also caps scores and logits.
local nn = require "tandem.nn"

-- https://huggingface.co/google: config.json of each. scalar: scores are divided by the root of this number.
local sizes = {
  ["2-2b"] = { dim = 2304, layers = 26, heads = 8, kv_heads = 4, hidden = 9216, scalar = 256 },
  ["2-9b"] = { dim = 3584, layers = 42, heads = 16, kv_heads = 8, hidden = 14336, scalar = 256 },
  ["2-27b"] = { dim = 4608, layers = 46, heads = 32, kv_heads = 16, head_dim = 128, hidden = 36864,
    scalar = 144 },
  ["3-1b"] = { dim = 1152, layers = 26, heads = 4, kv_heads = 1, hidden = 6912, vocab = 262144, scalar = 256,
    window = 512 },
  ["3-4b"] = { dim = 2560, layers = 34, heads = 8, kv_heads = 4, hidden = 10240, scalar = 256, factor = 8.0 },
  ["3-12b"] = { dim = 3840, layers = 48, heads = 16, kv_heads = 8, hidden = 15360, scalar = 256, factor = 8.0 },
  ["3-27b"] = { dim = 5376, layers = 62, heads = 32, kv_heads = 16, head_dim = 128, hidden = 21504,
    scalar = 168, factor = 8.0 },
  ["3-tiny"] = { dim = 64, layers = 6, heads = 4, kv_heads = 2, head_dim = 16, hidden = 160, vocab = 256,
    scalar = 16, window = 8 },
  ["2-tiny"] = { dim = 64, layers = 4, heads = 4, kv_heads = 2, head_dim = 16, hidden = 160, vocab = 256,
    scalar = 16, window = 8 },
}
for name, size in pairs(sizes) do
  local is_3 = name:sub(1, 2) == "3-"
  size.qk_norm = is_3
  size.vocab = size.vocab or is_3 and 262208 or 256000
  -- In Gemma 3, five of six layers are local. They keep the old base of RoPE.
  size.theta, size.local_theta, size.every = is_3 and 1e6 or 1e4, 1e4, is_3 and 6 or 2
  size.window = size.window or is_3 and 1024 or 4096
  size.score_cap, size.logit_cap = not is_3 and 50.0, not is_3 and 30.0
end
local defaults = { head_dim = 256, eps = 1e-6, factor = false }

local function mlp(c, out_init)
  return nn.module {
    gate = nn.linear(c.dim, c.hidden),
    up = nn.linear(c.dim, c.hidden),
    down = nn.linear(c.hidden, c.dim, { init = out_init }),
    forward = function(m, x) return m.down(nn.gelu(m.gate(x)) * m.up(x)) end,
  }
end

-- Llama's scaling with low = high divides every frequency by the same factor. This is Gemma 3's linear scaling.
local function rope_of(c, index)
  if (index + 1) % nn.within("gemma", "every", c.every, 1, 1 << 30) ~= 0 then return c.local_theta, nil end
  return c.theta, c.factor and { factor = c.factor, low = 1e30, high = 1e30, context = 8192 } or nil
end

local function block(c, index)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  local theta, scaling = rope_of(c, index)
  local function norm() return nn.rmsnorm(c.dim, { eps = c.eps }) end
  return nn.block {
    attention_norm = norm(), post_attention_norm = norm(), mlp_norm = norm(), post_mlp_norm = norm(),
    attention = nn.attention {
      dim = c.dim, heads = c.heads, kv_heads = c.kv_heads, head_dim = c.head_dim,
      scale = 1 / math.sqrt(nn.within("gemma", "scalar", c.scalar, 1, 1 << 30)), qk_norm = c.qk_norm and { eps = c.eps },
      rope_theta = theta, rope_scaling = scaling, out_init = out_init, cap = c.score_cap or nil,
      window = (index + 1) % c.every ~= 0 and c.window or nil,
    },
    mlp = mlp(c, out_init),
    tp_col = { "attention.wq", "attention.wk", "attention.wv", "mlp.gate", "mlp.up" },
    tp_row = { "attention.wo", "mlp.down" },
    forward = function(m, x)
      local h = x + m.post_attention_norm(m.attention(m.attention_norm(x)))
      return h + m.post_mlp_norm(m.mlp(m.mlp_norm(h)))
    end,
  }
end

local function build(c)
  local embed = nn.embedding(c.vocab, c.dim)
  return nn.module {
    embed = embed,
    layers = nn.list(c.layers, function(index) return block(c, index) end),
    norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    head = nn.linear(c.dim, c.vocab, { weight = embed }),
    tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      local x = nn.scale(m.embed(tokens), math.sqrt(c.dim))
      local logits = m.head(m.norm(m.layers(x)))
      return nn.cross_entropy(c.logit_cap and nn.soft_cap(logits, c.logit_cap) or logits, labels)
    end,
  }
end

-- The smallest model of the same structure. Its second layer has the RoPE of the sixth layer, so both kinds occur.
local function shrink(c, mesh)
  return nn.small(c, mesh, { scalar = 5, every = math.min(c.every, 2), window = 3 })
end

return function(what)
  local name, config = nn.family("gemma", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
