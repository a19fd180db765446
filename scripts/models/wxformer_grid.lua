-- WXFormer (miles-credit's crossformer) on its grid: four levels of cross-scale embedding and window attention, then up-blocks back
-- to the grid. A layer first attends within windows of adjacent points, then within windows of points at regular distances.
-- models.wxformer is the same stack on tokens. Use: require "models.wxformer_grid" "0.25deg", or { size = "tiny", depth = { 1, 1,
-- 1, 1 } }. The published model has one layer for q, k and v. Here there are three, because tensor parallelism splits each of them.
-- pad_lat, pad_lon: the padding of the grid: a number, or { top, bottom } and { left, right }
-- pad_mode: beyond a pole, "mirror" takes mirrored rows, "earth" the rows of the other side of the globe
-- decoder: "transpose": transposed convolutions; "resize": bilinear, then a convolution (miles-credit's upsample_v_conv);
--   "shuffle": a convolution, then channels become points (upsample_with_ps)
--
-- Longitude is periodic with both values of pad_mode.
local nn, check = require "tandem.nn", require "tandem.check"

local published = { levels = 16, channels = 4, surface_channels = 7, input_only_channels = 3, output_only_channels = 0,
  frames = 1, dim = { 128, 256, 512, 1024 }, depth = { 2, 2, 8, 2 }, dim_head = 32, local_window_size = 10,
  global_window_size = { 10, 5, 2, 1 }, cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
  cross_embed_strides = { 2, 2, 2, 2 }, pad_lat = 80, pad_lon = 80, image_height = 640, image_width = 1280 }

local sizes = {
  ["tiny"] = nn.with(published, { levels = 1, channels = 2, surface_channels = 1, input_only_channels = 1,
    dim = { 8, 8, 16, 16 }, depth = { 1, 1, 1, 1 }, dim_head = 4, local_window_size = 2,
    global_window_size = { 4, 2, 1, 1 }, cross_embed_kernel_sizes = { { 4, 8 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    pad_lat = 0, pad_lon = 0, image_height = 32, image_width = 64 }),
  ["0.25deg"] = published, -- in miles-credit: config/arXiv_2024/wxformer_6h_single_step.yml
}
local defaults = { mult = 4, ff_dropout = 0.0, eps = 1e-5, interp = true, latitude = true, use_spectral_norm = false,
  pad_mode = "mirror", decoder = "transpose", field = false }

-- Returns the paddings of the two sides. A number is the padding of both; a pair has one number for each.
local function sides(pad)
  if type(pad) == "table" then return pad[1], pad[2] end
  return pad, pad
end

local function cross_embed(c, n_in, n_out, kernels, stride)
  local convs, left = {}, n_out
  for i, kernel in ipairs(kernels) do
    local made = i < #kernels and n_out // 2 ^ i // 1 | 0 or left
    left = left - made
    local pad = kernel - stride
    convs[i] = nn.conv2d(n_in, made, { kernel = kernel, stride = stride, padding = pad % 2 == 0 and pad // 2 or 0,
      spectral_norm = c.use_spectral_norm })
  end
  local function read(m, i, x)
    local pad = kernels[i] - stride -- if pad is odd, the bottom and the right get one point more
    local uneven = { pad // 2, pad - pad // 2 }
    return m.convs[i](pad % 2 == 0 and x or nn.pad(x, { rows = uneven, columns = uneven }))
  end
  return nn.module { convs = nn.list(convs), forward = function(m, x)
    local all = read(m, 1, x)
    for i = 2, #convs do all = nn.concat(all, read(m, i, x)) end
    return all
  end }
end

-- Makes a network that gives a bias for each offset between two points of a window.
local function position_bias(c, dim, window)
  local how = { bias = true, spectral_norm = c.use_spectral_norm }
  local function layer(n_in)
    return nn.module { linear = nn.linear(n_in, dim, how), norm = nn.layernorm(dim, { eps = c.eps }),
      forward = function(m, x) return nn.relu(m.norm(m.linear(x))) end }
  end
  return nn.module { layers = nn.list { layer(2), layer(dim), layer(dim) }, last = nn.linear(dim, 1, how),
    forward = function(m) return m.last(m.layers(nn.window_offsets(window))) end }
end

local function attention(c, dim, window, strided)
  local heads = dim // c.dim_head
  local inner, how = heads * c.dim_head, { bias = false, spectral_norm = c.use_spectral_norm }
  return nn.module {
    norm = nn.channel_norm(dim, { eps = c.eps }),
    to_q = nn.conv2d(dim, inner, how), to_k = nn.conv2d(dim, inner, how), to_v = nn.conv2d(dim, inner, how),
    to_out = nn.conv2d(inner, dim, { spectral_norm = c.use_spectral_norm }),
    dpb = position_bias(c, math.max(dim // 4, 1), window),
    tp_col = { "to_q", "to_k", "to_v" }, tp_row = "to_out",
    forward = function(m, x)
      x = m.norm(x)
      return m.to_out(nn.window_attention(m.to_q(x), m.to_k(x), m.to_v(x), { heads = heads, window = window,
        strided = strided, bias = m.dpb() }))
    end,
  }
end

local function feed_forward(c, dim)
  return nn.module {
    norm = nn.channel_norm(dim, { eps = c.eps }),
    up = nn.conv2d(dim, c.mult * dim, { spectral_norm = c.use_spectral_norm }),
    down = nn.conv2d(c.mult * dim, dim, { spectral_norm = c.use_spectral_norm }),
    tp_col = "up", tp_row = "down",
    forward = function(m, x) return m.down(nn.dropout(nn.gelu(m.up(m.norm(x))), c.ff_dropout)) end,
  }
end

local function transformer(c, level)
  local dim = c.dim[level]
  return nn.block {
    layers = nn.list(c.depth[level], function()
      return nn.module {
        short = attention(c, dim, c.local_window_size, false), short_ff = feed_forward(c, dim),
        long = attention(c, dim, c.global_window_size[level], true), long_ff = feed_forward(c, dim),
        forward = function(m, x)
          x = m.short(x) + x
          x = m.short_ff(x) + x
          x = m.long(x) + x
          return m.long_ff(x) + x
        end,
      }
    end),
    fsdp2_shard = true,
    forward = function(m, x) return m.layers(x) end,
  }
end

local function conv3(c, n_in, n_out)
  return nn.conv2d(n_in, n_out, { kernel = 3, padding = 1, spectral_norm = c.use_spectral_norm })
end

-- Layers that make the grid twice as fine. n_out: the number of channels.
local growing = {
  transpose = function(c, n_in, n_out, kernel)
    return { grow = nn.conv_transpose2d(n_in, n_out, { kernel = kernel, stride = 2, padding = (kernel - 2) // 2,
        spectral_norm = c.use_spectral_norm }),
      forward = function(m, x) return m.grow(x) end }
  end,
  resize = function(c, n_in, n_out)
    return { conv = conv3(c, n_in, n_out), forward = function(m, x)
      return m.conv(nn.resize(x, { height = 2 * x.shape[3], width = 2 * x.shape[4] }))
    end }
  end,
  shuffle = function(c, n_in, n_out)
    return { conv = conv3(c, n_in, 4 * n_out), forward = function(m, x) return nn.pixel_shuffle(m.conv(x), 2) end }
  end,
}

local function up_block(c, n_in, n_out)
  local function layer()
    return nn.module {
      conv = conv3(c, n_out, n_out), norm = nn.group_norm(math.min(c.dim[1], n_out), n_out),
      forward = function(m, x) return nn.silu(m.norm(m.conv(x))) end,
    }
  end
  return nn.block {
    up = nn.module(growing[c.decoder](c, n_in, n_out, 2)),
    sharp = c.decoder == "shuffle" and conv3(c, n_out, n_out) or nil,
    layers = nn.list { layer(), layer() },
    fsdp2_shard = true,
    forward = function(m, x)
      x = m.up(x)
      if c.decoder == "shuffle" then x = m.sharp(x) + x end
      return m.layers(x) + x
    end,
  }
end

-- The last up-block, which goes from the finest level back to the grid.
local function last_up(c, n_in, n_out)
  local parts = growing[c.decoder](c, n_in, n_out, 4)
  if c.decoder ~= "shuffle" then return nn.module(parts) end
  return nn.module { up = nn.module(parts), conv = conv3(c, n_out, n_out),
    forward = function(m, x) return m.conv(m.up(x)) end }
end

local function counts(c)
  local state = c.channels * c.levels + c.surface_channels
  return (state + c.input_only_channels) * c.frames, state + c.output_only_channels
end

-- Checks the configuration when the model is built, because --set may have changed it after the call.
local function check_config(c)
  local who = "models.wxformer_grid"
  for _, key in ipairs { "dim", "depth", "global_window_size", "cross_embed_kernel_sizes", "cross_embed_strides" } do
    check.entries(who, key, c[key], 4, "one for each level")
  end
  check.count(who, "dim_head", c.dim_head)
  check.word(who, "decoder", c.decoder, { "transpose", "resize", "shuffle" })
  check.word(who, "pad_mode", c.pad_mode, { "mirror", "earth" })
end

local function build(c)
  check_config(c)
  local n_in, n_out = counts(c)
  local last = c.dim[4]
  return nn.module {
    embeds = nn.list(4, function(i)
      return cross_embed(c, i == 0 and n_in or c.dim[i], c.dim[i + 1], c.cross_embed_kernel_sizes[i + 1],
        c.cross_embed_strides[i + 1])
    end),
    levels = nn.list(4, function(i) return transformer(c, i + 1) end),
    up1 = up_block(c, last, last // 2), up2 = up_block(c, last // 2 + c.dim[3], last // 4),
    up3 = up_block(c, last // 4 + c.dim[2], last // 8),
    up4 = last_up(c, last // 8 + c.dim[1], n_out),
    forward = function(m, x, target)
      local top, bottom = sides(c.pad_lat)
      local left, right = sides(c.pad_lon)
      local pads, seen = top + bottom + left + right > 0, {}
      if pads then
        x = nn.pad(x, { rows = { top, bottom }, columns = { left, right },
          mode = { c.pad_mode == "earth" and "earth" or "reflect", "circular" } })
      end
      for i = 1, 4 do
        x = m.levels[i](m.embeds[i](x))
        seen[i] = x
      end
      x = nn.concat(m.up1(x), seen[3])
      x = nn.concat(m.up2(x), seen[2])
      x = nn.concat(m.up3(x), seen[1])
      x = m.up4(x)
      if pads then x = nn.pad(x, { rows = { -top, -bottom }, columns = { -left, -right } }) end
      if c.interp and (x.shape[3] ~= target.shape[3] or x.shape[4] ~= target.shape[4]) then
        x = nn.resize(x, { height = target.shape[3], width = target.shape[4] })
      end
      return nn.mse_loss(x, target, { latitude = c.latitude })
    end,
  }
end

-- Returns a small padding of the same kind as the original: none, equal sides or unequal sides.
local function few(pad)
  local first, last = sides(pad)
  if first + last == 0 then return 0 end
  return first == last and 8 or { 7, 8 }
end

-- Each level halves the grid. The last level has one window of each kind.
local function shrink(c, mesh)
  local dim = {}
  for i = 1, 4 do dim[i] = 8 * mesh.tp end
  local small = nn.with(c, { levels = 1, channels = 1, surface_channels = 1, input_only_channels = 1, dim = dim,
    depth = { 1, 1, 1, 1 }, dim_head = 2, local_window_size = 2, global_window_size = { 2, 2, 2, 1 },
    cross_embed_kernel_sizes = { { 4, 8 }, { 2, 4 }, { 2, 4 }, { 2, 4 } }, cross_embed_strides = { 2, 2, 2, 2 },
    pad_lat = few(c.pad_lat), pad_lon = few(c.pad_lon) })
  local n_in, n_out = counts(small)
  local top, bottom = sides(small.pad_lat)
  local left, right = sides(small.pad_lon)
  small.field = { channels = n_in, targets = n_out, height = 32 * mesh.domain - top - bottom,
    width = 64 * mesh.domain_w - left - right }
  return small
end

return function(what)
  local name, config = nn.family("wxformer_grid", what, sizes, defaults)
  return { name = name, config = config, build = build, shrink = shrink }
end
