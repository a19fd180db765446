-- The loss of a field model has no tokens that could be cut into pieces.
local nn = require "tandem.nn"
local function build()
  return nn.module {
    conv = nn.conv2d(2, 2, { kernel = 3, padding = 1 }),
    forward = function(m, fields, target) return nn.mse_loss(m.conv(fields), target) end,
  }
end
return plan {
  model = { name = "field", config = {}, build = build },
  batch = { global = 2, channels = 2, height = 8, width = 8 },
  parallel = { tile {} },
}
