-- Phi-1.5 and 2, Phi-3 and 4: require "models.phi" "2", or { size = "2", layers = 4 } to change parts of
-- it. Up to Phi-2, attention and MLP read the same norm, and their outputs are added. All linears have
-- biases, and RoPE rotates only a part of each head. From Phi-3 on, the structure is Llama's; the mini has
-- no GQA. Phi-3's published weights join q, k, v and gate, up. Here these are separate linears, with the
-- same function and the same number of parameters. With fused = true, q, k, v are one weight, and so are
-- gate, up. Tensor parallelism then splits each segment by its heads or features. dropout: the probability
-- for the outputs of attention and MLP (resid_pdrop: 0.1 when Phi-2 was trained). Sliding windows are left
-- out. "3-mini-128k" stretches the rotation by LongRoPE: short factors up to 4096 tokens, long ones beyond.
local nn, gate_up = require "tandem.nn", require "models.gate_up"

-- https://huggingface.co/microsoft/Phi-3-mini-128k-instruct: "rope_scaling" of config.json
local mini_128k = { kind = "longrope", context = 4096, length = 131072,
  short = { 1.1, 1.1, 1.1, 1.3000000000000003, 1.3500000000000003, 1.3500000000000003, 1.4000000000000004,
    1.5500000000000005, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001,
    2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001,
    2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001, 2.000000000000001,
    2.000000000000001, 2.000000000000001, 2.000000000000001, 2.0500000000000007, 2.0500000000000007,
    2.0500000000000007, 2.0500000000000007, 2.0500000000000007, 2.0500000000000007, 2.1000000000000005,
    2.1000000000000005, 2.1500000000000004, 2.25, 2.25, 2.25, 2.25, 2.25, 2.3999999999999995,
    2.4499999999999993, 2.499999999999999, 2.6999999999999984, 2.6999999999999984, 2.7499999999999982,
    2.799999999999998, 2.8999999999999977, 3.049999999999997 },
  long = { 1.0700000524520874, 1.1200000047683716, 1.149999976158142, 1.4199999570846558, 1.5699999332427979,
    1.7999999523162842, 2.129999876022339, 2.129999876022339, 3.009999990463257, 5.910000324249268,
    6.950000286102295, 9.070000648498535, 9.930000305175781, 10.710000038146973, 11.130000114440918,
    14.609999656677246, 15.409998893737793, 19.809999465942383, 37.279998779296875, 38.279998779296875,
    38.599998474121094, 40.12000274658203, 46.20000457763672, 50.940006256103516, 53.66000747680664,
    54.9373893737793, 56.89738845825195, 57.28738784790039, 59.98738479614258, 60.86738586425781,
    60.887386322021484, 61.71739196777344, 62.91739273071289, 62.957393646240234, 63.41739273071289,
    63.8173942565918, 63.83739471435547, 63.897396087646484, 63.93739700317383, 64.06739807128906,
    64.11434936523438, 64.12435150146484, 64.15435028076172, 64.19435119628906, 64.24435424804688,
    64.57435607910156, 64.69000244140625, 64.76000213623047 } }

-- https://huggingface.co/microsoft: config.json of each
local sizes = {
  ["1.5"] = { dim = 2048, layers = 24, heads = 32, hidden = 8192, vocab = 51200, rope_dims = 32, parallel = true },
  ["2"] = { dim = 2560, layers = 32, heads = 32, hidden = 10240, vocab = 51200, rope_dims = 32, parallel = true },
  ["3-mini"] = { dim = 3072, layers = 32, heads = 32, hidden = 8192, vocab = 32064 },
  ["3-mini-128k"] = { dim = 3072, layers = 32, heads = 32, hidden = 8192, vocab = 32064, rope_scaling = mini_128k },
  ["3-medium"] = { dim = 5120, layers = 40, heads = 40, kv_heads = 10, hidden = 17920, vocab = 32064 },
  ["4"] = { dim = 5120, layers = 40, heads = 40, kv_heads = 10, hidden = 17920, vocab = 100352, theta = 250000.0 },
  ["2-tiny"] = { dim = 64, layers = 2, heads = 4, hidden = 256, vocab = 256, rope_dims = 6, parallel = true },
  ["3-tiny"] = { dim = 64, layers = 2, heads = 4, hidden = 160, vocab = 256 },
  ["3-128k-tiny"] = { dim = 64, layers = 2, heads = 8, hidden = 160, vocab = 256,
    rope_scaling = { kind = "longrope", context = 64, length = 2048, short = { 1.1, 1.5, 2.0, 3.0 }, long = { 1.1, 4.0, 30.0, 33.0 } } },
}
local defaults = { kv_heads = false, head_dim = false, theta = 10000.0, eps = 1e-5, rope_dims = false, rope_scaling = false,
  parallel = false, fused = false, dropout = 0 }

local function attention(c, out_init)
  return nn.attention {
    dim = c.dim, heads = c.heads, kv_heads = c.kv_heads or nil, head_dim = c.head_dim or nil,
    bias = c.parallel, fused = c.fused, rope_theta = c.theta, rope_dims = c.rope_dims or nil,
    rope_scaling = c.rope_scaling or nil, out_init = out_init,
  }
end

-- Returns the paths that tp splits by columns: the linears of attention, and the paths given here.
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

-- The smallest model of the same structure. If the model rotates only a part of a head, the small model rotates half of it.
local function shrink(c, mesh)
  return nn.small(c, mesh, { rope_dims = c.rope_dims and 2 })
end

return function(what)
  local name, config = nn.family("phi", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
