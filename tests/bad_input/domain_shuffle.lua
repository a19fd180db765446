-- Each of 7 rows becomes two. Two ranks cannot share them out evenly.
local nn = require "tandem.nn"
return plan {
  model = nn.module {
    grow = nn.conv2d(1, 4, { kernel = 3, padding = 1 }), shrink = nn.conv2d(1, 1, { kernel = 2, stride = 2 }),
    forward = function(m, x, target) return nn.mse_loss(m.shrink(nn.pixel_shuffle(m.grow(x), 2)), target) end,
  },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 1, micro = 1, channels = 1, height = 7, width = 8 },
  mesh = { domain = 2 },
  parallel = { domain {}, ddp {} },
}
