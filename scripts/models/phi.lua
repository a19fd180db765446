-- Phi-1.5 and 2, Phi-3 and 4: require "models.phi" "2", or { size = "2", layers = 4 } to change parts of
-- it. Up to Phi-2, attention and MLP read one norm and are added together; there are biases everywhere,
-- and RoPE rotates only a part of each head. From Phi-3 on they are like Llama, without GQA in the mini.
-- Phi-3's published weights fuse q, k, v and gate, up. Here they are separate linears, with the same
-- function and count. With fused = true, q, k, v are one weight, and so are gate, up. Tensor parallelism
-- cuts each segment by its heads or features. dropout: of both branches (resid_pdrop: 0.1 when Phi-2 was
-- trained). Left out for lack of ops: sliding windows and the long-context tables of frequencies.
local nn, gate_up = require "tandem.nn", require "models.gate_up"

-- https://huggingface.co/microsoft: config.json of each
local sizes = {
  ["1.5"] = { dim = 2048, layers = 24, heads = 32, hidden = 8192, vocab = 51200, rope_dims = 32, parallel = true },
  ["2"] = { dim = 2560, layers = 32, heads = 32, hidden = 10240, vocab = 51200, rope_dims = 32, parallel = true },
  ["3-mini"] = { dim = 3072, layers = 32, heads = 32, hidden = 8192, vocab = 32064 },
  ["3-medium"] = { dim = 5120, layers = 40, heads = 40, kv_heads = 10, hidden = 17920, vocab = 32064 },
  ["4"] = { dim = 5120, layers = 40, heads = 40, kv_heads = 10, hidden = 17920, vocab = 100352, theta = 250000.0 },
  ["2-tiny"] = { dim = 64, layers = 2, heads = 4, hidden = 256, vocab = 256, rope_dims = 6, parallel = true },
  ["3-tiny"] = { dim = 64, layers = 2, heads = 4, hidden = 160, vocab = 256 },
}
local defaults = { kv_heads = false, head_dim = false, theta = 10000.0, eps = 1e-5, rope_dims = false,
  parallel = false, fused = false, dropout = 0 }

local function attention(c, out_init)
  return nn.attention {
    dim = c.dim, heads = c.heads, kv_heads = c.kv_heads or nil, head_dim = c.head_dim or nil,
    bias = c.parallel, fused = c.fused, rope_theta = c.theta, rope_dims = c.rope_dims or nil, out_init = out_init,
  }
end

-- tp cuts these by columns: the linears of attention, and the linears named here.
local function columns(c, ...)
  if c.fused then return { "attention.wqkv", ... } end
  return { "attention.wq", "attention.wk", "attention.wv", ... }
end

local function gated(c, out_init)
  if c.fused then return gate_up(c.dim, c.hidden, { "gate_up", "down" }, out_init) end
  local down = nn.linear(c.hidden, c.dim, { init = out_init })
  return nn.module { down = down, gate = nn.linear(c.dim, c.hidden), up = nn.linear(c.dim, c.hidden),
    forward = function(m, x) return m.down(nn.silu(m.gate(x)) * m.up(x)) end }
end

local function parallel_block(c)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    norm = nn.layernorm(c.dim, { eps = c.eps }),
    attention = attention(c, out_init),
    mlp = nn.module {
      fc1 = nn.linear(c.dim, c.hidden, { bias = true }),
      fc2 = nn.linear(c.hidden, c.dim, { bias = true, init = out_init }),
      forward = function(m, x) return m.fc2(nn.gelu(m.fc1(x))) end,
    },
    tp_col = columns(c, "mlp.fc1"),
    tp_row = { "attention.wo", "mlp.fc2" },
    forward = function(m, x)
      local h = m.norm(x)
      return x + nn.dropout(m.attention(h), c.dropout) + nn.dropout(m.mlp(h), c.dropout)
    end,
  }
end

local function sequential_block(c)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    attention_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    attention = attention(c, out_init),
    mlp_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    mlp = gated(c, out_init),
    tp_col = c.fused and columns(c, "mlp.gate_up") or columns(c, "mlp.gate", "mlp.up"),
    tp_row = { "attention.wo", "mlp.down" },
    forward = function(m, x)
      local h = x + nn.dropout(m.attention(m.attention_norm(x)), c.dropout)
      return h + nn.dropout(m.mlp(m.mlp_norm(h)), c.dropout)
    end,
  }
end

local function build(c)
  local block = c.parallel and parallel_block or sequential_block
  local norm = c.parallel and nn.layernorm or nn.rmsnorm
  return nn.module {
    embed = nn.embedding(c.vocab, c.dim),
    layers = nn.list(c.layers, function() return block(c) end),
    norm = norm(c.dim, { eps = c.eps }),
    head = nn.linear(c.dim, c.vocab, { bias = c.parallel }),
    tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.norm(m.layers(m.embed(tokens)))), labels)
    end,
  }
end

-- The smallest model of the same structure; if only a part of a head is rotated, half of it is here.
local function shrink(c, mesh)
  return nn.small(c, mesh, { rope_dims = c.rope_dims and 2 })
end

return function(what)
  local name, config = nn.family("phi", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
