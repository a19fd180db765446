-- Four rows of a globe for each rank, and twelve behind its pole: they lie beyond the neighbour's rows.
local nn = require "tandem.nn"
return plan {
  model = nn.module {
    conv = nn.conv2d(1, 1, { kernel = 3, padding = 1 }),
    forward = function(m, x, target)
      x = m.conv(nn.pad(x, { rows = { 12, 12 }, columns = { 0, 0 }, mode = "earth" }))
      return nn.mse_loss(nn.pad(x, { rows = { -12, -12 }, columns = { 0, 0 } }), target)
    end,
  },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 1, micro = 1, channels = 1, height = 16, width = 8 },
  mesh = { domain = 4 },
  parallel = { domain {}, ddp {} },
}
