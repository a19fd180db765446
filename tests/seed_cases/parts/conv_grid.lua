-- A convolution of a field. If it strides, a transposed convolution brings the field back to the grid.
-- Options: kernel and stride of the convolution; rows and columns of padding, which is added before the
-- convolution and removed after it, and comes from beyond the poles if earth is set; latitude: weigh the rows.
local nn = require "tandem.nn"

local function build(c)
  local stride = c.stride or 1
  return nn.module {
    blocks = nn.list(1, function()
      return nn.block {
        conv = nn.conv2d(2, 4, { kernel = c.kernel, stride = stride, padding = (c.kernel - stride) // 2 }),
        back = nn.conv_transpose2d(4, 2, { kernel = stride, stride = stride }),
        fsdp2_shard = true,
        forward = function(m, x) return m.back(nn.gelu(m.conv(x))) end,
      }
    end),
    forward = function(m, x, target)
      local rows, columns = c.rows or { 0, 0 }, c.columns or { 0, 0 }
      x = nn.pad(x, { rows = rows, columns = columns, mode = { c.earth and "earth" or "reflect", "circular" } })
      x = nn.pad(m.blocks(x), { rows = { -rows[1], -rows[2] }, columns = { -columns[1], -columns[2] } })
      return nn.mse_loss(x, target, { latitude = c.latitude or false })
    end,
  }
end

return function(options)
  return { name = "conv_grid", config = options, build = build }
end
