-- Functions of torch.nn on fields [b, channels, height, width]: convolutions, norms, pooling,
-- resizing, attention in windows, and the mean squared error. Padding modes: "zeros", "reflect",
-- "circular", "symmetric".
local _, core = ...
local check = require "tandem.check"
local module = require "tandem.module"
local tensors, inits, shape_text = check.tensors, check.inits, check.shape_text
local op, param, use, new_module = module.op, module.param, module.use, module.new_module

local fields = {}
local modes = { zeros = 0, reflect = 1, circular = 2, symmetric = 3 }

-- Reads a size that is one number for both directions, or { height, width }. least: the smallest
-- number allowed.
local function pair(who, what, value, default, least)
  if value == nil then value = default end
  local list = type(value) == "table" and value or { value, value }
  if #list ~= 2 then
    core.fail("wrong-type", ("%s: %s must be a number or { height, width }"):format(who, what))
  end
  local result = {}
  for i = 1, 2 do
    local n = list[i]
    if math.type(n) == "float" and math.tointeger(n) then n = math.tointeger(n) end
    if math.type(n) ~= "integer" then
      core.fail("wrong-type", ("%s: %s must be an integer, not %s"):format(who, what, check.value_text(n)))
    end
    if n < least or n > 1 << 20 then
      core.fail("out-of-range", ("%s: %s = %d must be between %d and 2^20"):format(who, what, n, least))
    end
    result[i] = n
  end
  return result
end

local function mode_of(who, value)
  local names = type(value) == "table" and value or { value or "zeros", value or "zeros" }
  for i = 1, 2 do
    if not modes[names[i]] then
      core.fail("unknown-word", ("%s: padding_mode = '%s' is not an allowed word"):format(who, tostring(names[i])),
        core.near(tostring(names[i]), check.words(modes)) or "one of: circular, reflect, symmetric, zeros")
    end
  end
  return { modes[names[1]], modes[names[2]] }
end

local function window(how)
  return { h_kernel = how.kernel[1], w_kernel = how.kernel[2], h_stride = how.stride[1], w_stride = how.stride[2],
    h_dilation = how.dilation[1], w_dilation = how.dilation[2], h_before = how.before[1], w_before = how.before[2],
    h_after = how.after[1], w_after = how.after[2], h_mode = how.mode[1], w_mode = how.mode[2] }
end

local function field(who, x, channels)
  local id = check.tensor(who, "the input", x, 4)
  if channels and x.shape[2] ~= channels then
    core.fail("shape-mismatch", ("%s needs %d channels, but its input has shape %s"):format(who, channels, shape_text(x.shape)))
  end
  return id
end

-- Checks that a window fits into the padded field, and that the field has enough rows and columns
-- for its padding mode.
local function check_fit(who, x, how)
  for i = 1, 2 do
    local size, what = x.shape[2 + i], i == 1 and "height" or "width"
    local extent = (how.kernel[i] - 1) * how.dilation[i] + 1
    if size + how.before[i] + how.after[i] < extent then
      core.fail("shape-mismatch", ("%s: a kernel of %d does not fit %s %d with padding %d"):format(who, extent, what,
        size, how.before[i]), ("the %s must be at least %d"):format(what, extent - how.before[i] - how.after[i]))
    end
    local most = how.mode[i] == 1 and size - 1 or size
    if how.mode[i] ~= 0 and math.max(how.before[i], how.after[i]) > most then
      core.fail("shape-mismatch", ("%s: padding of %d rows does not fit a %s of %d"):format(who,
        math.max(how.before[i], how.after[i]), what, size), ("padding may be up to %d"):format(most))
    end
  end
end

-- Returns true for a 1x1 convolution without padding, stride or groups. It is a linear map of the
-- channels, so tp may split it by columns or rows.
local function is_plain(how)
  for i = 1, 2 do
    if how.kernel[i] ~= 1 or how.stride[i] ~= 1 or how.before[i] ~= 0 or how.dilation[i] ~= 1 then return false end
  end
  return how.groups == 1
end

local function channel_bias(x, info)
  local own = info.params.bias
  return own and op("channel_bias", nil, tensors[x], use(own)) or x
end

local standard = { kernel = 1, stride = 1, padding = 0, dilation = 1 }

local function read_window(who, options)
  local how = { mode = mode_of(who, options.padding_mode) }
  for key, default in pairs(standard) do
    how[key] = pair(who, key, options[key], default, key == "padding" and 0 or 1)
  end
  how.before, how.after = how.padding, how.padding
  return how
end

local function read_conv(who, known, normal, n_in, n_out, options)
  n_in, n_out = check.count(who, "in_channels", n_in), check.count(who, "out_channels", n_out)
  options = check.options(who, options, known[who])
  local how = read_window(who, options)
  how.groups = check.count(who, "groups", options.groups, 1)
  how.bias = check.flag(who, "bias", options.bias, true)
  how.init = check.init(who, options.init, normal)
  if n_in % how.groups ~= 0 or n_out % how.groups ~= 0 then
    core.fail("out-of-range", ("%s: groups = %d must divide %d and %d channels"):format(who, how.groups, n_in, n_out))
  end
  return n_in, n_out, options, how
end

-- Returns the weight of a convolution. made, read: the numbers of channels in the weight's first
-- and in its second index.
local function weight_of(info, how, made, read, plain)
  local dims = { made // how.groups, read // how.groups, how.kernel[1], how.kernel[2] }
  if how.groups > 1 then table.insert(dims, 1, how.groups) end
  return param(info, "weight", dims, { init = how.init, column = 0, row = plain and 1 or 0 })
end

function fields.add(nn, known, normal, check_norm, over_norm)
  local function norm_of(who, options, how)
    local spectral = check_norm(who, options, how.init)
    if spectral and how.groups > 1 then
      core.fail("spectral-norm", who .. ": spectral_norm does not work with groups", "set groups = 1, or leave out spectral_norm")
    end
    return spectral
  end

  nn.conv2d = core.wrap(function(n_in, n_out, options)
    local who, how = "nn.conv2d", nil
    n_in, n_out, options, how = read_conv(who, known, normal, n_in, n_out, options)
    local spectral, plain = norm_of(who, options, how), is_plain(how)
    local info = { params = {}, tp_styles = plain and { column = true, row = true } or nil }
    local own = weight_of(info, how, n_out, n_in, plain)
    if how.bias then
      param(info, "bias", { n_out }, { init = inits[nn.zeros], style = module.bias_style, column = 0 })
    end
    return new_module("conv2d", function(_, x)
      local id = field(who, x, n_in)
      check_fit(who, x, how)
      local y = op(how.groups > 1 and "conv2d_groups" or "conv2d", window(how), id, use(own))
      if spectral then
        y = over_norm(y, info, use(own), { n_in, how.kernel[1], how.kernel[2] }, { n_out }, nil, "first")
      end
      return channel_bias(y, info)
    end, {}, info)
  end)

  nn.conv_transpose2d = core.wrap(function(n_in, n_out, options)
    local who, how = "nn.conv_transpose2d", nil
    n_in, n_out, options, how = read_conv(who, known, normal, n_in, n_out, options)
    local more, spectral = pair(who, "output_padding", options.output_padding, 0, 0), norm_of(who, options, how)
    local info = { params = {} }
    local own = weight_of(info, how, n_in, n_out)
    for i = 1, 2 do
      if more[i] >= how.stride[i] then
        core.fail("out-of-range", ("%s: output_padding = %d must be less than stride = %d"):format(who, more[i],
          how.stride[i]))
      end
      if how.mode[i] ~= 0 then
        core.fail("out-of-range", who .. ": only zeros can be padded here", "set padding_mode = \"zeros\"")
      end
    end
    how.after = { how.padding[1] - more[1], how.padding[2] - more[2] }
    if how.bias then param(info, "bias", { n_out }, { init = inits[nn.zeros] }) end
    return new_module("conv_transpose2d", function(_, x)
      local id = field(who, x, n_in)
      for i = 1, 2 do
        local made = (x.shape[2 + i] - 1) * how.stride[i] + (how.kernel[i] - 1) * how.dilation[i] + 1
          - how.before[i] - how.after[i]
        if made < 1 then
          core.fail("shape-mismatch", ("%s: nothing is left of shape %s with padding %d"):format(who,
            shape_text(x.shape), how.padding[i]), "less padding")
        end
      end
      local y = op(how.groups > 1 and "conv_transpose2d_groups" or "conv_transpose2d", window(how), id, use(own))
      if spectral then
        y = over_norm(y, info, use(own), { n_in, how.kernel[1], how.kernel[2] }, { n_out }, nil, "second")
      end
      return channel_bias(y, info)
    end, {}, info)
  end)

  nn.group_norm = core.wrap(function(groups, channels, options)
    local who = "nn.group_norm"
    groups, channels = check.count(who, "groups", groups), check.count(who, "channels", channels)
    options = check.options(who, options, known[who])
    if channels % groups ~= 0 then
      core.fail("out-of-range", ("%s: %d channels are not a multiple of %d groups"):format(who, channels, groups))
    end
    local attrs = { eps = check.number(who, "eps", options.eps, 1e-5), group = groups }
    local info = { params = {} }
    local weight = param(info, "weight", { channels }, { init = check.init(who, options.init, nn.ones) })
    local bias = param(info, "bias", { channels }, { init = inits[nn.zeros] })
    return new_module("group_norm", function(_, x)
      local id = field(who, x, channels)
      local sum = tensors[op("group_sum", attrs, id)]
      local spread = tensors[op("group_spread", attrs, id, sum)]
      return op("group_norm", attrs, id, sum, spread, use(weight), use(bias))
    end, {}, info)
  end)

  nn.channel_norm = core.wrap(function(channels, options)
    local who = "nn.channel_norm"
    channels = check.count(who, "channels", channels)
    options = check.options(who, options, known[who])
    local attrs, info = { eps = check.number(who, "eps", options.eps, 1e-5) }, { params = {} }
    local weight = param(info, "weight", { channels }, { init = check.init(who, options.init, nn.ones) })
    local bias = param(info, "bias", { channels }, { init = inits[nn.zeros] })
    return new_module("channel_norm", function(_, x)
      return op("channel_norm", attrs, field(who, x, channels), use(weight), use(bias))
    end, {}, info)
  end)

  local function pool(name)
    local who = "nn." .. name
    nn[name] = core.wrap(function(x, options)
      local id = field(who, x)
      options = check.options(who, options, known[who])
      local how = read_window(who, options)
      if options.stride == nil then how.stride = how.kernel end
      if name == "max_pool2d" and how.mode[1] + how.mode[2] > 0 then
        core.fail("out-of-range", who .. ": padding can never be the maximum", "set padding_mode = \"zeros\"")
      end
      check_fit(who, x, how)
      return op(name, window(how), id)
    end)
  end
  pool "avg_pool2d"
  pool "max_pool2d"

  -- Pads or crops a field: the mean over windows of one point changes nothing else.
  local function padded(who, x, rows, columns, mode)
    local how = { kernel = { 1, 1 }, stride = { 1, 1 }, dilation = { 1, 1 }, before = { rows[1], columns[1] },
      after = { rows[2], columns[2] }, mode = mode }
    check_fit(who, x, how)
    return op("avg_pool2d", window(how), field(who, x))
  end

  -- Adds rows beyond the poles. They are the rows on the other side of the globe: mirrored, and
  -- moved by half of the longitudes.
  local function behind_poles(who, x, rows)
    local y = padded(who, x, rows, { 0, 0 }, { modes.symmetric, modes.zeros })
    return op("turn_poles", { h_before = math.max(rows[1], 0), h_after = math.max(rows[2], 0) }, tensors[y])
  end

  -- Pads a field; negative numbers crop it. Rows: { top, bottom }, columns: { left, right }.
  nn.pad = core.wrap(function(x, options)
    local who = "nn.pad"
    field(who, x)
    options = check.options(who, options, known[who])
    local rows = pair(who, "rows", options.rows, 0, -(1 << 20))
    local columns = pair(who, "columns", options.columns, 0, -(1 << 20))
    local mode, earth = options.mode, nil
    if type(mode) == "table" then earth = mode[1] else earth = mode end
    if earth ~= "earth" then return padded(who, x, rows, columns, mode_of(who, mode)) end
    local across = type(mode) == "table" and mode[2] or "circular"
    return padded(who, behind_poles(who, x, rows), { 0, 0 }, columns, mode_of(who, { "zeros", across }))
  end)

  nn.resize = core.wrap(function(x, options)
    local who = "nn.resize"
    local id = field(who, x)
    options = check.options(who, options, known[who])
    local mode = options.mode or "bilinear"
    if mode ~= "bilinear" and mode ~= "nearest" then
      core.fail("unknown-word", ("%s: mode = '%s' is not an allowed word"):format(who, tostring(mode)), "bilinear or nearest")
    end
    return op("resize", { rows = check.count(who, "height", options.height, x.shape[3]),
      columns = check.count(who, "width", options.width, x.shape[4]), nearest = mode == "nearest" and 1 or 0 }, id)
  end)

  nn.pixel_shuffle = core.wrap(function(x, factor)
    local who = "nn.pixel_shuffle"
    local id = field(who, x)
    factor = check.count(who, "factor", factor)
    if x.shape[2] % (factor * factor) ~= 0 then
      core.fail("shape-mismatch", ("%s: %d channels are not a multiple of factor^2 = %d"):format(who, x.shape[2],
        factor * factor))
    end
    return op("pixel_shuffle", { h_kernel = factor, w_kernel = factor }, id)
  end)

  nn.concat = core.wrap(function(a, b)
    local who = "nn.concat"
    local first, second = field(who, a), field(who, b)
    for _, d in ipairs { 1, 3, 4 } do
      if a.shape[d] ~= b.shape[d] then
        core.fail("shape-mismatch", ("%s: shapes %s and %s differ in more than channels"):format(who,
          shape_text(a.shape), shape_text(b.shape)), "nn.pad crops one of them")
      end
    end
    return op("concat", nil, first, second)
  end)

  nn.channels = core.wrap(function(x, first, count)
    local who = "nn.channels"
    local id = field(who, x)
    first, count = pair(who, "first", first, 0, 0)[1], check.count(who, "count", count)
    if first + count > x.shape[2] then
      core.fail("out-of-range", ("%s: channels %d to %d do not exist in a field of %d"):format(who, first, first + count - 1, x.shape[2]))
    end
    return op("channels", { first = first, count = count }, id)
  end)

  nn.mse_loss = core.wrap(function(prediction, target, options)
    local who = "nn.mse_loss"
    local x, y = field(who, prediction), check.tensor(who, "the target", target, 4)
    options = check.options(who, options, known[who])
    for d = 1, 4 do
      if prediction.shape[d] ~= target.shape[d] then
        core.fail("shape-mismatch", ("%s: prediction %s and target %s differ"):format(who, shape_text(prediction.shape),
          shape_text(target.shape)))
      end
    end
    local latitude = check.flag(who, "latitude", options.latitude, false)
    return op("mse_loss", { latitude = latitude and 1 or 0 }, x, y)
  end)

  -- Returns all offsets between two points of a window, [b, (2 rows - 1)(2 columns - 1), 2]. A
  -- network of nn.linear turns them into [b, n, 1], the bias of nn.window_attention.
  nn.window_offsets = core.wrap(function(rows, columns)
    local who = "nn.window_offsets"
    rows = check.count(who, "rows", rows)
    columns = check.count(who, "columns", columns, rows)
    if rows > 144 or columns > 144 then
      core.fail("out-of-range", ("%s: a window of %d x %d points is too large"):format(who, rows, columns), "at most 144 points")
    end
    local key = rows .. "x" .. columns
    module.offsets[key] = module.offsets[key] or module.tensor(core.offsets(rows, columns))
    return module.offsets[key]
  end)

  nn.window_attention = core.wrap(function(q, k, v, options)
    local who = "nn.window_attention"
    local ids = { field(who, q), field(who, k), field(who, v) }
    options = check.options(who, options, known[who])
    local heads, size = check.count(who, "heads", options.heads), pair(who, "window", options.window, nil, 1)
    local features = q.shape[2] // heads
    if q.shape[2] % heads ~= 0 then
      core.fail("divides-heads", ("%s: %d channels are not a multiple of %d heads"):format(who, q.shape[2], heads))
    end
    for i = 1, 2 do
      if q.shape[2 + i] % size[i] ~= 0 then
        core.fail("shape-mismatch", ("%s: %s = %d is not a multiple of the window of %d"):format(who,
          i == 1 and "height" or "width", q.shape[2 + i], size[i]), "pad the field to whole windows")
      end
    end
    if size[1] * size[2] > 144 or size[1] * size[2] * features > 16384 then
      core.fail("out-of-range", ("%s: windows of %d points with %d features a head; at most 144 points, and 16384 "
        .. "points times features"):format(who, size[1] * size[2], features), "a smaller window")
    end
    local bias = check.tensor(who, "the bias", options.bias, 3)
    local attrs = { h_kernel = size[1], w_kernel = size[2], group = heads,
      scale = check.number(who, "scale", options.scale, 1 / math.sqrt(features)) }
    local table_of = op("window_bias", attrs, tensors[op("sum_features", nil, bias)])
    local strided = check.flag(who, "strided", options.strided, false)
    return op(strided and "strided_attention" or "window_attention", attrs, ids[1], ids[2], ids[3], tensors[table_of])
  end)
end

return fields
