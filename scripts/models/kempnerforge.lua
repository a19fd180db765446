-- The transformer that KempnerForge trains: attention with grouped heads and RoPE, a SwiGLU MLP (a plain
-- MLP if activation = "gelu"), and a norm before each. `config` has KempnerForge's own keys, and `hidden`.
local nn = require "tandem.nn"

local function norm(c)
  local make = c.norm_type == "layernorm" and nn.layernorm or nn.rmsnorm
  return make(c.dim, { eps = c.norm_eps, init = c.norm_weights == 0 and nn.zeros or nil })
end

local function swiglu(c, init, out_init)
  return nn.module {
    gate_proj = nn.linear(c.dim, c.hidden, { init = init }),
    up_proj = nn.linear(c.dim, c.hidden, { init = init }),
    down_proj = nn.linear(c.hidden, c.dim, { init = out_init }),
    tp_col = { "gate_proj", "up_proj" }, tp_row = "down_proj",
    forward = function(m, x) return m.down_proj(nn.silu(m.gate_proj(x)) * m.up_proj(x)) end,
  }
end

local function plain(c, init, out_init)
  return nn.module {
    up_proj = nn.linear(c.dim, c.hidden, { init = init }),
    down_proj = nn.linear(c.hidden, c.dim, { init = out_init }),
    tp_col = "up_proj", tp_row = "down_proj",
    forward = function(m, x) return m.down_proj(nn.gelu(m.up_proj(x))) end,
  }
end

-- A mixture of SwiGLU experts. However many shared MLPs the config requests, only one is added, as in KempnerForge.
local function mixture(c, init, out_init)
  local routed = nn.moe { dim = c.dim, hidden = c.expert_hidden, experts = c.num_experts, top_k = c.moe_top_k,
    capacity_factor = c.moe_capacity_factor > 0 and c.moe_capacity_factor or "all", aux_loss = c.moe_aux_loss_weight,
    z_loss = c.moe_router_z_loss_weight, init = init, out_init = out_init }
  if c.moe_shared_experts == 0 then return routed end
  return nn.module {
    routed = routed, shared_expert = swiglu(c, init, out_init),
    forward = function(m, x) return m.routed(x) + m.shared_expert(x) end,
  }
end

local function feed_forward(c, i, init, out_init)
  if c.num_experts > 0 and (i + 1) % c.moe_frequency == 0 then return mixture(c, init, out_init) end
  return (c.activation == "silu" and swiglu or plain)(c, init, out_init)
end

local function block(c, i)
  local init = nn.normal(0, c.init_std)
  local out_init = nn.normal(0, c.init_std / math.sqrt(2 * c.n_layers))
  return nn.block {
    attention_norm = norm(c),
    attention = nn.attention { dim = c.dim, heads = c.n_heads, kv_heads = c.n_kv_heads,
      head_dim = c.head_dim or nil, rope_theta = c.rope_theta, init = init, out_init = out_init,
      qk_norm = c.qk_norm and { eps = c.norm_eps } or nil },
    mlp_norm = norm(c),
    mlp = feed_forward(c, i, init, out_init),
    tp_col = { "attention.wq", "attention.wk", "attention.wv" }, tp_row = "attention.wo",
    forward = function(m, x)
      local h = x + m.attention(m.attention_norm(x))
      return h + m.mlp(m.mlp_norm(h))
    end,
  }
end

-- Turns the features of image tokens into features of the decoder. The image tokens themselves are
-- random vectors.
local function adapter(c)
  local i = c.images
  local hidden = i.hidden > 0 and i.hidden or c.dim
  if i.type == "linear" then return nn.linear(i.features, c.dim, { bias = true }) end
  local activation = { gelu = nn.gelu, silu = nn.silu, relu = nn.relu }
  return nn.module {
    proj1 = nn.linear(i.features, hidden, { bias = true }), proj2 = nn.linear(hidden, c.dim, { bias = true }),
    fsdp2_shard = true,
    forward = function(m, x) return m.proj2(activation[i.activation](m.proj1(x))) end,
  }
end

-- A block of arch = "cross_attention": the text reads the image, without positions and mask. By default there are as many
-- KV heads as query heads. The last weight of both halves is zero, so the block has no effect at the start. In the smallest
-- model (`starts`) these weights are random: with zeros, a comparison would see no gradient in the rest of the block.
local function cross_block(c)
  local i, init = c.images, nn.normal(0, c.init_std)
  local out_init = i.starts and nn.normal(0, c.init_std) or nn.zeros
  local function own_norm() return norm(nn.with(c, { norm_eps = 1e-5 })) end
  return nn.module {
    attn_norm = own_norm(), mlp_norm = own_norm(),
    attn = nn.attention { dim = c.dim, heads = i.heads, kv_heads = i.kv_heads, head_dim = c.head_dim or c.dim // i.heads, causal = false,
      init = init, out_init = out_init },
    mlp = (c.activation == "silu" and swiglu or plain)(c, init, out_init),
    fsdp2_shard = true,
    forward = function(m, x, image)
      x = x + m.attn(m.attn_norm(x), { memory = image })
      return x + m.mlp(m.mlp_norm(x))
    end,
  }
end

-- Returns the output of the decoder for the text x together with the image.
local function with_image(m, c, x)
  local i, text = c.images, x.shape[2]
  local image = m.adapter(nn.image { height = 1, width = i.tokens, patch = 1, channels = i.features })
  if i.arch ~= "cross_attention" then return nn.span(m.layers(nn.join(image, x)), i.tokens, text) end
  for k, layer in ipairs(m.layers) do
    x = layer(x)
    if k % i.every == 0 then x = m.cross_attention_layers[k // i.every](x, image) end
  end
  return x
end

local function build(c)
  local crosses = c.images and c.images.arch == "cross_attention" and c.n_layers // c.images.every or 0
  local init = nn.normal(0, c.init_std)
  local embed = nn.embedding(c.vocab_size, c.dim, { init = init })
  return nn.module {
    token_embedding = embed, adapter = c.images and adapter(c) or nil,
    layers = nn.list(c.n_layers, function(i) return block(c, i) end),
    cross_attention_layers = crosses > 0 and nn.list(crosses, function() return cross_block(c) end) or nil,
    norm = norm(c),
    output_head = c.tie_embeddings and nn.linear(c.dim, c.vocab_size, { weight = embed })
      or nn.linear(c.dim, c.vocab_size, { init = init }),
    forward = function(m, tokens, labels)
      local x = m.token_embedding(tokens)
      x = c.images and with_image(m, c, x) or m.layers(x)
      return nn.cross_entropy(m.output_head(m.norm(x)), labels, { z_loss = c.z_loss })
    end,
  }
end

-- The smallest model of the same structure. Sizes that tp or cp splits are multiples of tp or cp:
-- the heads, and the tokens of the text, of an image, and of both together. With 8-bit products,
-- tokens and features are multiples of the block of numbers that shares a scale.
local function shrink(c, mesh)
  local tp, cp, block = mesh.tp, mesh.cp, mesh.block
  local experts = c.num_experts > 0 and 2 * math.max(mesh.ep, 2) or 0
  return nn.with(c, {
    images = c.images and nn.with(c.images, { tokens = 3 * block * tp, features = 5, hidden = 7, starts = true,
      every = c.images.every and math.min(c.images.every, c.n_layers, 2), heads = 2 * tp * cp, kv_heads = tp * cp }),
    num_experts = experts, moe_top_k = math.min(c.moe_top_k, 2), expert_hidden = 6 * block,
    n_layers = math.min(c.n_layers, 2 * mesh.stages), dim = 13 * mesh.multiple, vocab_size = 29, head_dim = 4,
    n_kv_heads = tp * cp, n_heads = tp * cp * math.min(c.n_heads // c.n_kv_heads, 2), hidden = 7 * block * tp,
    seq = 5 * block * tp * cp * (cp > 1 and 2 or 1),
  })
end

return function(config)
  return { name = "kempnerforge", config = config, build = build, shrink = shrink }
end
