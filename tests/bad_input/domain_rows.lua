-- 9 rows over 6 ranks: parts of 2 leave none to the sixth.
local nn = require "tandem.nn"
return plan {
  model = nn.module {
    conv = nn.conv2d(1, 1, { kernel = 3, stride = 2, padding = 1 }), grow = nn.conv_transpose2d(1, 1, { kernel = 3, stride = 2, padding = 1 }),
    forward = function(m, x, target) return nn.mse_loss(m.grow(m.conv(x)), target) end,
  },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 1, micro = 1, channels = 1, height = 9, width = 9 },
  mesh = { domain = 6 },
  parallel = { domain {}, ddp {} },
}
