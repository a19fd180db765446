-- A U-Net on fields: each level has two 3x3 convolutions with group norm. On the way down, max pooling halves the field.
-- On the way up, transposed convolutions double it, and a level also reads the field of the same level on the way down.
-- Longitude is periodic, latitude is mirrored. Use: require "models.unet" "tiny", or { size = "tiny", width = 8 }.
local nn = require "tandem.nn"

-- width: the number of channels of the first level; depth: the number of times that the field is halved
local sizes = {
  ["tiny"] = { width = 8, depth = 2, channels = 2, targets = 2 },
  ["base"] = { width = 64, depth = 4, channels = 67, targets = 67 },
}
local defaults = { groups = 4, latitude = true, field = false }

local function stage(c, n_in, n_out)
  local function layer(from)
    return nn.module {
      conv = nn.conv2d(from, n_out, { kernel = 3, padding = 1, padding_mode = { "reflect", "circular" },
        init = nn.normal(0, (2 / (9 * from)) ^ 0.5) }),
      norm = nn.group_norm(c.groups, n_out),
      forward = function(m, x) return nn.silu(m.norm(m.conv(x))) end,
    }
  end
  return nn.block { layers = nn.list { layer(n_in), layer(n_out) }, fsdp2_shard = true,
    forward = function(m, x) return m.layers(x) end }
end

local function build(c)
  local function width(level) return c.width * 2 ^ level // 1 | 0 end
  return nn.module {
    down = nn.list(c.depth, function(i) return stage(c, i == 0 and c.channels or width(i - 1), width(i)) end),
    middle = stage(c, width(c.depth - 1), width(c.depth)),
    up = nn.list(c.depth, function(i)
      local level = c.depth - 1 - i
      return nn.module {
        grow = nn.conv_transpose2d(width(level + 1), width(level), { kernel = 2, stride = 2 }),
        stage = stage(c, 2 * width(level), width(level)),
        forward = function(m, x, beside) return m.stage(nn.concat(m.grow(x), beside)) end,
      }
    end),
    head = nn.conv2d(c.width, c.targets),
    forward = function(m, x, target)
      local beside = {}
      for i = 1, c.depth do
        beside[i] = m.down[i](x)
        x = nn.max_pool2d(beside[i], { kernel = 2 })
      end
      x = m.middle(x)
      for i = 1, c.depth do x = m.up[i](x, beside[c.depth + 1 - i]) end
      return nn.mse_loss(m.head(x), target, { latitude = c.latitude })
    end,
  }
end

-- Each rank has two rows of the last level. If domain_w does not split the columns, the last level has an odd number of them.
local function shrink(c, mesh)
  return nn.with(c, { width = 4, depth = math.min(c.depth, 2), groups = 2, channels = 2, targets = 2,
    field = { channels = 2, targets = 2, height = 8 * mesh.domain, width = mesh.domain_w > 1 and 8 * mesh.domain_w or 12 } })
end

return function(what)
  local name, config = nn.family("unet", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
