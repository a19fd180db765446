local nn = require "tandem.nn"
return plan {
  cluster = require "clusters.local_cpu" {},
  model = nn.module { conv = nn.conv2d(2, 0, { kernel = 3 }), forward = function(m, x, target) return nn.mse_loss(m.conv(x), target) end },
  batch = { global = 2, micro = 2, channels = 2, height = 8, width = 8 },
}
