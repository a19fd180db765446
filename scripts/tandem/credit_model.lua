-- Turns miles-credit's own model block, { type = "wxformer", image_height = ..., padding_conf = ...
-- }, into a model and a field of this library. It makes the checks of miles-credit's parser, of
-- `credit check`, and of the constructor of its model.
local _, core = ...
local dialect = require "tandem.dialect"
local reader = {}

-- The types of models that miles-credit knows. Each value is the `decoder` of models.wxformer_grid;
-- false: this version of Tandem cannot plan the type.
local types = { wxformer = "shuffle", wxformer_base = "shuffle", crossformer = "transpose", camulator = false,
  ["crossformer-diffusion"] = false, ["unet-diffusion"] = false, ["crossformer-ensemble"] = false,
  ["crossformer-style"] = false, unet = false, fuxi = false, swin = false, graph = false, debugger = false, wrf = false,
  dscale = false, crossformer_downscaling = false, unet_downscaling = false, nextgen_wxformer = false }

local counts = { frames = 2, output_frames = 1, channels = 4, surface_channels = 7, input_only_channels = 3,
  output_only_channels = 0, levels = 15, image_height = 640, image_width = 1280, dim_head = 32, patch_height = 1,
  patch_width = 1 }
local stages = { dim = { 64, 128, 256, 512 }, depth = { 2, 2, 8, 2 }, global_window_size = { 5, 5, 2, 1 },
  local_window_size = 10, cross_embed_strides = { 4, 2, 2, 2 },
  cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } } }
local plain = { type = true, attn_dropout = 0, ff_dropout = 0, use_spectral_norm = true, interp = true,
  upsample_with_ps = true, upsample_v_conv = false, padding_conf = false, pad_lat = false, pad_lon = false,
  post_conf = false, attention_type = false, decoder_attention_type = false, frame_patch_size = 1,
  static_channels = false }

local may_be_zero = { channels = true, surface_channels = true, input_only_channels = true, output_only_channels = true,
  levels = true }

local known = {}
for _, group in ipairs { counts, stages, plain } do for key in pairs(group) do known[key] = true end end

-- Returns an integer of the configuration that is at least `least`, or nil after an error. at: the
-- key whose line the error names. name: the key's name in the message, if it is not `at`.
local function integer(d, at, value, least, name)
  local n = math.tointeger(tonumber(value))
  if not n or n < least then
    d:error("out-of-range", at, ("%s must be an integer >= %d, not %s"):format(name or at, least, tostring(value)))
    return nil
  end
  return n
end

-- Checks a list of the configuration: each entry, also of lists inside it, must be a positive
-- integer.
local function check_entries(d, at, name, value)
  for i, entry in ipairs(value) do
    local own = ("%s[%d]"):format(name, i)
    if type(entry) == "table" and #entry == 0 then
      d:error("out-of-range", at, ("%s is empty: it needs an entry"):format(own))
    elseif type(entry) == "table" then check_entries(d, at, own, entry) else integer(d, at, entry, 1, own) end
  end
end

-- Returns a key's values for the four stages, or nil after an error. (If a list has another length,
-- miles-credit fails without a message.)
local function four(d, block, key)
  local value = block[key]
  if value == nil then value = stages[key] end
  if type(value) ~= "table" then
    if not integer(d, "model." .. key, value, 1) then return nil end
    return { value, value, value, value }
  end
  check_entries(d, "model." .. key, "model." .. key, value)
  if #value ~= 4 then
    d:error("out-of-range", "model." .. key, ("model.%s has %d entries, not one for each of the 4 stages"):format(key,
      #value), "4 entries, or one value for all stages")
    return nil
  end
  return value
end

-- Returns the padding { before, after } of latitude and of longitude (nil after an error), and the
-- mode. Without padding_conf, model.pad_lat and model.pad_lon apply, with mirrored edges.
local function padding(d, block)
  local conf, at = block.padding_conf, "model.padding_conf"
  if not conf then
    if not (block.pad_lat and block.pad_lon) then return { 0, 0 }, { 0, 0 }, "mirror" end
    conf, at = { activate = true, mode = "mirror", pad_lat = block.pad_lat, pad_lon = block.pad_lon }, "model"
  end
  if type(conf) ~= "table" then
    d:error("wrong-type", at, ("%s must be a table, not %s"):format(at, tostring(conf)))
    return nil, nil, "mirror"
  end
  if not conf.activate then return { 0, 0 }, { 0, 0 }, "mirror" end
  if conf.mode ~= "mirror" and conf.mode ~= "earth" then
    d:error("unknown-word", at .. ".mode", ("Padding options must be \"mirror\" or \"earth\", not '%s'"):format(
      tostring(conf.mode)), "mode = \"earth\"")
  end
  local function pair(key)
    local value, own, name = conf[key], {}, at .. "." .. key
    for i = 1, 2 do
      if type(value) == "table" then
        own[i] = integer(d, name, value[i], 0, ("%s[%d]"):format(name, i))
      else
        own[i] = i == 1 and integer(d, name, value, 0) or own[1]
      end
    end
    if not (own[1] and own[2]) then return nil end
    if own[2] == 0 and own[1] > 0 then
      d:mistake("pad-one-sided", at .. "." .. key, ("%s = { %d, 0 }: miles-credit's slice [:-0] is empty, so its "
        .. "padding or cropping at that edge takes the whole field or none of it"):format(key, own[1]),
        "at least 1 on both sides")
    end
    return own
  end
  return pair "pad_lat", pair "pad_lon", conf.mode
end

-- Computes the number of points of each stage along one direction. Returns the first stage whose
-- points do not form whole windows, its number of points, and the window; nil: there is none.
local function first_unfit(c, points)
  for i = 1, 4 do
    local stride = c.cross_embed_strides[i]
    points = (points - stride) // stride + 1
    for _, window in ipairs { 1, c.global_window_size[i], c.local_window_size } do
      if points < 1 or points % window ~= 0 then return i, points, window end
    end
  end
end

local function check_along(d, c, key, size, points, pad)
  if not pad then return end
  local most = math.max(pad[1], pad[2])
  if most > points then
    d:error("out-of-range", "model.padding_conf", ("%s = %d: the padding repeats points of the grid, and model.%s = %d "
      .. "has fewer"):format(key, most, size, points), ("%s may be up to %d"):format(key, points))
    return
  end
  local all = points + pad[1] + pad[2]
  local stage, left, window = first_unfit(c, all)
  if not stage then return end
  local hint
  for more = 1, 4096 do
    if not first_unfit(c, all + more) then
      local total = pad[1] + pad[2] + more
      hint = ("%s = { %d, %d }"):format(key, total // 2, total - total // 2)
      break
    end
  end
  d:error("shape-mismatch", "model.padding_conf", ("%d points, padded to %d: stage %d of the encoder has %d points, which do not "
    .. "fill whole windows of %d"):format(points, all, stage - 1, left, window), hint)
end

-- Checks the widths. The decoder's norms have dim[1] groups, so dim[1] must divide the decoder's
-- widths. The first stage must be wide enough for one head.
local function check_widths(d, c)
  for i = 1, 4 do
    local kernels = #c.cross_embed_kernel_sizes[i]
    if c.dim[i] < 2 ^ (kernels - 1) then
      d:error("out-of-range", "model.dim", ("dim[%d] = %d: each kernel of a stage takes half of the remaining channels, "
        .. "and nothing would be left for one of %d"):format(i, c.dim[i], kernels),
        ("dim[%d] = %d or more, or fewer kernels in cross_embed_kernel_sizes[%d]"):format(i, 2 ^ (kernels - 1) // 1 | 0, i))
      return
    end
  end
  local narrow = c.dim[4] // 8
  if narrow == 0 or narrow % c.dim[1] ~= 0 then
    d:error("out-of-range", "model.dim", ("dim[1] = %d groups do not divide the narrowest up-block's %d channels"):format(
      c.dim[1], narrow), ("dim[1] may be %s"):format(dialect.divisors(math.max(narrow, 1))))
  end
  if c.dim[1] < c.dim_head then
    d:error("out-of-range", "model.dim_head", ("dim = %d is smaller than dim_head = %d"):format(c.dim[1], c.dim_head),
      ("dim_head may be up to %d"):format(c.dim[1]))
  end
end

local function not_planned(d, block, c)
  local function refuse(key, why, hint) d:error("dialect-unsupported", "model." .. key, why, hint) end
  if c.patch_height > 1 or c.patch_width > 1 then
    refuse("patch_height", "this version has no patches of several points", "patch_height = 1, patch_width = 1")
  end
  if c.output_frames > 1 then refuse("output_frames", "this version has no models with several output frames", "output_frames = 1") end
  for _, key in ipairs { "attn_dropout", "ff_dropout" } do
    local p = block[key] or 0
    if type(p) ~= "number" or p < 0 or p >= 1 then
      d:error("out-of-range", "model." .. key, ("model.%s must be a number >= 0 and < 1, not %s"):format(key, tostring(p)))
    end
  end
  if type(block.attn_dropout) == "number" and block.attn_dropout > 0 and block.attn_dropout < 1 then
    refuse("attn_dropout", "attention in windows has no dropout", "attn_dropout = 0")
  end
  local shuffles = types[block.type] == "shuffle"
  if block.attention_type and not shuffles then
    refuse("attention_type", "this version has no attention in up-blocks", "leave it out")
  end
  for _, key in ipairs { "decoder_attention_type", shuffles and "attention_type" or "upsample_with_ps",
    shuffles and "upsample_v_conv" or nil } do
    if block[key] then d:note("not-applied", "model." .. key, ("%s: a %s does not read it"):format(key, block.type)) end
  end
  if shuffles and block.upsample_with_ps == false then
    d:warn("not-applied", "model.upsample_with_ps", "upsample_with_ps = false: the transposed decoder was taken out of "
      .. "miles-credit; sub-pixel convolutions take its place")
  end
  if type(block.post_conf) == "table" and block.post_conf.activate then
    d:warn("not-applied", "model.post_conf", "post_conf: the plan leaves out the fixers behind the model, and their time")
  end
end

-- Returns the model and its field, or nil after an error.
function reader.read(d, block)
  d:known_keys(block, known, "model", "model")
  if types[block.type] == nil then
    local names = {}
    for name in pairs(types) do names[#names + 1] = name end
    d:error("unknown-word", "model.type", ("Model type %s not supported"):format(tostring(block.type)),
      core.near(tostring(block.type), names) or "wxformer, crossformer")
    return nil
  end
  if not types[block.type] then
    d:error("dialect-unsupported", "model.type", ("this version does not plan model.type = '%s'"):format(block.type),
      "wxformer or crossformer")
    return nil
  end
  local c, before = {}, d.n_errors
  for key, default in pairs(counts) do
    c[key] = integer(d, "model." .. key, block[key] == nil and default or block[key], may_be_zero[key] and 0 or 1)
  end
  for key in pairs(stages) do c[key] = four(d, block, key) end
  if d.n_errors > before then return nil end
  if c.channels * c.levels + c.surface_channels == 0 then
    d:error("out-of-range", "model.channels", ("channels = %d on levels = %d and surface_channels = %d: the state has no "
      .. "channel"):format(c.channels, c.levels, c.surface_channels), "set at least one of them above 0")
    return nil
  end
  local windows = c.local_window_size
  for i = 2, 4 do
    if windows[i] ~= windows[1] then
      d:error("dialect-unsupported", "model.local_window_size", "this version has one local window for all stages",
        "one size for all stages")
    end
  end
  c.local_window_size = windows[1]
  for i, kernels in ipairs(c.cross_embed_kernel_sizes) do
    if type(kernels) ~= "table" then kernels = { kernels } else kernels = dialect.copy(kernels) end
    table.sort(kernels) -- miles-credit gives the smallest kernel the most channels
    c.cross_embed_kernel_sizes[i] = kernels
  end
  local lat, lon, mode = padding(d, block)
  check_widths(d, c)
  check_along(d, c, "pad_lat", "image_height", c.image_height, lat)
  check_along(d, c, "pad_lon", "image_width", c.image_width, lon)
  not_planned(d, block, c)
  if d.n_errors > 0 then return nil end
  local spectral = block.use_spectral_norm ~= false
  local decoder = types[block.type]
  if decoder == "transpose" and block.upsample_v_conv then decoder = "resize" end
  local own = { size = "0.25deg", decoder = decoder, pad_lat = lat, pad_lon = lon, pad_mode = mode,
    use_spectral_norm = spectral, interp = block.interp ~= false, ff_dropout = block.ff_dropout or 0.0 }
  for _, key in ipairs { "frames", "channels", "surface_channels", "input_only_channels", "output_only_channels", "levels",
    "image_height", "image_width", "dim_head", "dim", "depth", "global_window_size", "local_window_size",
    "cross_embed_strides", "cross_embed_kernel_sizes" } do own[key] = c[key] end
  local state = c.channels * c.levels + c.surface_channels
  local field = { channels = (state + c.input_only_channels) * c.frames, targets = state + c.output_only_channels,
    height = c.image_height, width = c.image_width }
  return require "models.wxformer_grid"(own), field
end

return reader
