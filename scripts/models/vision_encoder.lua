-- The encoder of ViT and of CLIP: patches, a class token, learned positions, and blocks in which
-- each token sees all tokens. ViT has GELU, CLIP has QuickGELU.
local nn = require "tandem.nn"

local function block(c, cut)
  local activation = c.clip and nn.quick_gelu or nn.gelu
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    norm1 = nn.layernorm(c.dim, { eps = c.eps }),
    attention = nn.attention { dim = c.dim, heads = c.heads, head_dim = c.head_dim or nil, causal = false, bias = true, out_init = out_init },
    norm2 = nn.layernorm(c.dim, { eps = c.eps }),
    up = nn.linear(c.dim, c.hidden or 4 * c.dim, { bias = true }),
    down = nn.linear(c.hidden or 4 * c.dim, c.dim, { bias = true, init = out_init }),
    tp_col = cut and { "attention.wq", "attention.wk", "attention.wv", "up" } or nil, tp_row = cut and { "attention.wo", "down" } or nil,
    forward = function(m, x)
      x = x + m.attention(m.norm1(x))
      return x + m.down(activation(m.up(m.norm2(x))))
    end,
  }
end

-- Returns the encoder. last: the number of first blocks that are computed, without the final norm; nil:
-- all blocks and the norm. (LLaVA reads the output of the last block but one.) With `last`, tp does not
-- split the blocks, because the number of tokens is odd, and so no multiple of the size of tp.
local function encoder(c, last)
  local side = c.image // nn.within("vision_encoder", "patch", c.patch, 1, 65536)
  return nn.module {
    patches = nn.linear(c.channels * c.patch * c.patch, c.dim, { bias = not c.clip }),
    class = nn.lead_tokens(1, c.dim), positions = nn.position(side * side + 1, c.dim),
    before = c.clip and nn.layernorm(c.dim, { eps = c.eps }) or nil,
    blocks = nn.list(last or c.layers, function() return block(c, not last) end),
    norm = not last and nn.layernorm(c.dim, { eps = c.eps }) or nil,
    forward = function(m)
      local x = m.positions(m.class(m.patches(nn.image { height = c.image, patch = c.patch, channels = c.channels })))
      if c.clip then x = m.before(x) end
      x = m.blocks(x)
      return last and x or m.norm(x)
    end,
  }
end

return encoder
