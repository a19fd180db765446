-- A globe of 11 rows over 2 ranks with 6 and 5 rows: padding from beyond the poles, two convolutions, group norm.
-- The halo for the weight's gradient is exchanged while the input's gradient is computed.
local nn = require "tandem.nn"
local function block()
  return nn.block {
    first = nn.conv2d(2, 4, { kernel = 3, padding = 1, padding_mode = { "zeros", "circular" } }), norm = nn.group_norm(2, 4),
    second = nn.conv2d(4, 2, { kernel = 3, padding = 1 }),
    forward = function(m, x) return m.second(nn.gelu(m.norm(m.first(x)))) end,
  }
end
return plan {
  model = nn.module { layers = nn.list(1, block), forward = function(m, x, target)
    x = m.layers(nn.pad(x, { rows = { 2, 3 }, columns = { 1, 1 }, mode = "earth" }))
    return nn.mse_loss(nn.pad(x, { rows = { -2, -3 }, columns = { -1, -1 } }), target, { latitude = true })
  end },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, channels = 2, height = 11, width = 8 },
  mesh = { dp_shard = 4, domain = 2 },
  parallel = { domain {}, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
