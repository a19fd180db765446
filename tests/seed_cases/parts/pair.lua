-- A model of tokens: two linear modules with biases, 8 -> 16 -> 8. tp splits the first by columns, the second by
-- rows. pair { opted = false } names no style; pair { column = "norm" } names the style of a module that is not
-- linear.
local nn = require "tandem.nn"

return function(options)
  local pair = nn.block {
    norm = nn.layernorm(8),
    col = nn.linear(8, options.hidden or 16, { bias = true }),
    row = nn.linear(options.hidden or 16, 8, { bias = true }),
    tp_col = options.opted ~= false and (options.column or "col") or nil,
    tp_row = options.opted ~= false and "row" or nil,
    forward = function(m, x) return x + m.row(nn.gelu(m.col(m.norm(x)))) end,
  }
  return nn.module {
    tokens = nn.embedding(12, 8), blocks = nn.list { pair }, head = nn.linear(8, 12),
    forward = function(m, x, labels)
      return nn.cross_entropy(m.head(m.blocks(m.tokens(x))), labels)
    end,
  }
end
