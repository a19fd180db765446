-- Two ranks cannot share three windows of attention: no window may be cut.
local nn = require "tandem.nn"
return plan {
  model = nn.module {
    q = nn.conv2d(2, 2), bias = nn.linear(2, 1),
    forward = function(m, x, target)
      x = m.q(x)
      local y = nn.window_attention(x, x, x, { heads = 1, window = 4, bias = m.bias(nn.window_offsets(4)) })
      return nn.mse_loss(y, target)
    end,
  },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 1, micro = 1, channels = 2, height = 12, width = 8 },
  mesh = { domain = 2 },
  parallel = { domain {}, ddp {} },
}
