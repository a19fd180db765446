-- Two 1x1 convolutions with 8 -> 16 -> 8 channels. tp splits the first by columns, the second by rows. `column`
-- has options of the first.
local nn = require "tandem.nn"

local function build(c)
  return nn.module {
    blocks = nn.list(1, function()
      return nn.block {
        col = nn.conv2d(8, 16, c.column), row = nn.conv2d(16, 8),
        tp_col = "col", tp_row = "row", fsdp2_shard = true,
        forward = function(m, x) return m.row(nn.gelu(m.col(x))) end,
      }
    end),
    forward = function(m, x, target)
      local y = m.blocks(x)
      return nn.mse_loss(y, target)
    end,
  }
end

return function(options)
  return { name = "conv_pair", config = options, build = build }
end
