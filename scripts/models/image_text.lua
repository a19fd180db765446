-- The decoder of models.llava and models.qwen2_vl: a block with a gated MLP, and the place of an
-- image in the text. The image's tokens come before the text, or after its first `before` tokens.
local nn = require "tandem.nn"
local image_text = {}

-- Returns a block of the config c. attention: further options of nn.attention.
function image_text.block(c, attention)
  local out_init = nn.normal(0, 0.02 / math.sqrt(2 * c.layers))
  return nn.block {
    attention_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    attention = nn.attention(nn.with({ dim = c.dim, heads = c.heads, head_dim = c.head_dim or nil, rope_theta = c.theta,
      out_init = out_init }, attention)),
    mlp_norm = nn.rmsnorm(c.dim, { eps = c.eps }),
    gate = nn.linear(c.dim, c.hidden), up = nn.linear(c.dim, c.hidden), down = nn.linear(c.hidden, c.dim, { init = out_init }),
    tp_col = { "attention.wq", "attention.wk", "attention.wv", "gate", "up" }, tp_row = { "attention.wo", "down" },
    forward = function(m, x)
      x = x + m.attention(m.attention_norm(x))
      local y = m.mlp_norm(x)
      return x + m.down(nn.silu(m.gate(y)) * m.up(y))
    end,
  }
end

-- Returns the output of the layers at the text's tokens alone. text, image: [batch, tokens, dim].
function image_text.decode(family, layers, text, image, before)
  local n, n_image = text.shape[2], image.shape[2]
  nn.within(family, "before", before, 0, n - 1)
  if before == 0 then return nn.span(layers(nn.join(image, text)), n_image, n) end
  local x = layers(nn.join(nn.join(nn.span(text, 0, before), image), nn.span(text, before, n - before)))
  return nn.join(nn.span(x, 0, before), nn.span(x, before + n_image, n - before))
end

return image_text
