-- tandem.nn: modules and functions that are named and used like those of torch.nn. Calling a module
-- appends its ops to the graph and checks their shapes. An error names the line of the call. The
-- passes split the model over ranks; here, tp_col, tp_row, tp_vocab and fsdp2_shard are only
-- recorded for them.
local _, core = ...
local check = require "tandem.check"
local modules, tensors, inits = check.modules, check.tensors, check.inits
local kind_of, shape_text, words = check.kind_of, check.shape_text, check.words
local module = require "tandem.module"
local segments = require "tandem.segments"
local experts = require "tandem.experts"
local fields = require "tandem.fields"
local attention = require "tandem.attention"
local families = require "tandem.families"
local images = require "tandem.images"
local state_space = require "tandem.state_space"
local longrope, rope_image = require "tandem.longrope", require "tandem.rope_image"
local known = require("tandem.nn_reference").known
require "tandem.trace"
local op, param, use, new_module = module.op, module.param, module.use, module.new_module
local state = module.state
local add_bias, bias_style = module.add_bias, module.bias_style

local nn = { module = module.module, block = module.block, list = module.list, segment = segments.take }

-- ---- initial values

local function init(kind, a, b)
  local value = {}
  inits[value] = { kind, a, b }
  return value
end
nn.zeros, nn.ones = init("zeros", 0.0, 0.0), init("ones", 0.0, 0.0)
nn.uninitialized = init("none", 0.0, 0.0) -- a plan with such a parameter is refused (`tandem explain init-missing`)
nn.normal = core.wrap(function(mean, deviation)
  return init("normal", check.number("nn.normal", "the mean", mean, 0.0),
    check.number("nn.normal", "the deviation", deviation, 1.0))
end)
nn.uniform = core.wrap(function(from, to)
  return init("uniform", check.number("nn.uniform", "from", from, 0.0),
    check.number("nn.uniform", "to", to, 1.0))
end)

local standard = init("normal", 0.0, 0.02)

-- Returns true if the initial values `how` = { kind, a, b } are all 0. Such a weight has the norm
-- 0, so spectral_norm cannot divide by it.
local function is_zero(how)
  local kind, a, b = table.unpack(how)
  return kind == "zeros" or ((kind == "normal" or kind == "uniform") and a == 0 and b == 0)
end

local function check_norm(who, options, start)
  local want = check.flag(who, "spectral_norm", options.spectral_norm, false)
  if want and is_zero(start) then
    core.fail("spectral-norm", who .. ": spectral_norm does not work with a weight of zeros, because its norm is 0",
      "use another init, or leave out spectral_norm")
  end
  return want
end

-- Returns x / sigma, as torch's parametrizations.spectral_norm does. sigma is the largest singular
-- value of the weight W that made x. Each training step makes one power iteration: u = W v, then v
-- = W^T u, each divided by its length. Then sigma = u^T W v. u and v are kept between steps. W is
-- read as a matrix: either its input side is the weight's first index and its output side all other
-- indices, or its output side is the last index and its input side all others. outputs (only for
-- convolutions): "first" or "second", the index of the weight that holds the output channels. A
-- module that is called twice computes sigma once.
local unit = { eps = 1e-12 }
local function over_norm(x, info, weight, in_dims, out_dims, each, outputs)
  if not info.sigma then
    local in_first = #in_dims == 1
    local function node(name, attrs, ...) return tensors[op(name, attrs, ...)] end
    local function next_of(vector, other, name)
      local made = node(name, nil, weight, other)
      return made, node("normalise", unit, vector, made, node("inner_product", nil, made, made))
    end
    local u, v = state(info, "weight_u", out_dims, segments.order(0, each)), state(info, "weight_v", in_dims)
    local made
    local of_u = outputs and "project_of_" .. outputs or in_first and "project_over_first" or "project_of_last"
    local of_v = outputs and "project_over_" .. outputs or in_first and "project_of_first" or "project_over_last"
    made, u = next_of(u, v, of_u)
    made, v = next_of(v, u, of_v)
    info.sigma = node("inner_product", nil, made, v)
  end
  return op("divide", nil, tensors[x], info.sigma)
end

-- Returns a linear module, whose weight has the shape [in_dims..., out_dims...]. in_dims: the sizes
-- of the dimensions over which a product sums. column: the dimension of the weight that tp_col
-- splits, counted from 0; tp_row splits dimension 0. how: bias, init, spectral and segments.
-- how.each: if the outputs are stored in groups (segments.lua), the number of features of each
-- segment in a group.
local function linear(who, op_name, in_dims, out_dims, column, how)
  local dims, bias = {}, {}
  for _, n in ipairs(in_dims) do dims[#dims + 1] = n end
  for _, n in ipairs(out_dims) do dims[#dims + 1] = n; bias[#bias + 1] = n end
  local info = { tp_styles = { column = true, row = true, vocab = not how.each }, params = {} }
  local own = param(info, "weight", dims, { init = how.init, column = column, row = 0,
    order = segments.order(#in_dims, how.each) })
  if how.bias then
    param(info, "bias", bias, { init = inits[nn.zeros], style = bias_style,
      column = math.max(column - #in_dims, 0), order = segments.order(0, how.each) })
  end
  local function forward(m, x)
    local id = check.tensor(who, "the input", x, 2 + #in_dims)
    for i, n in ipairs(in_dims) do
      if x.shape[2 + i] ~= n then
        core.fail("shape-mismatch", ("%s %s expects %s = %d, got shape %s"):format(who,
          modules[m].path or "", #in_dims == 1 and "in_features" or "heads x head_dim", n,
          shape_text(x.shape)))
      end
    end
    local y = op(op_name, nil, id, use(own))
    if how.spectral then y = over_norm(y, info, use(own), in_dims, out_dims, how.each) end
    check.segments[tensors[y]] = how.segments
    return add_bias(y, info)
  end
  return new_module("linear", forward, {}, info)
end

nn.linear = core.wrap(function(n_in, n_out, options)
  local who = "nn.linear"
  n_in, n_out = check.count(who, "in_features", n_in), check.count(who, "out_features", n_out)
  options = check.options(who, options, known[who])
  local how = { bias = check.flag(who, "bias", options.bias, false), init = check.init(who, options.init, standard) }
  how.spectral = check_norm(who, options, how.init)
  if options.segments ~= nil then
    if options.weight ~= nil then core.fail("fused-segments", who .. ": a head that shares the weight of an embedding cannot have segments") end
    local n = segments.read(who, options.segments, n_out, how)
    if not how.each then return linear(who, "linear_segments", { n_in }, { n, n_out // n }, 2, how) end
    return linear(who, "linear_groups", { n_in }, { n, n_out // n }, 1, how)
  end
  if options.weight == nil then return linear(who, "linear", { n_in }, { n_out }, 1, how) end
  if how.spectral then
    core.fail("spectral-norm", who .. ": spectral_norm does not work with a weight that an embedding shares",
      "leave out weight or spectral_norm")
  end
  local from = check.module(who, "weight", options.weight)
  if from.class ~= "embedding" then
    core.fail("wrong-type", ("%s: weight must be an nn.embedding, not nn.%s"):format(who,
      from.class))
  end
  local own = from.params.weight
  if own.dims[1] ~= n_out or own.dims[2] ~= n_in then
    core.fail("shape-mismatch", ("%s: (%d, %d) cannot share a weight of nn.embedding(%d, %d)"):format(
      who, n_in, n_out, own.dims[1], own.dims[2]), "write nn.linear(dim, vocab, ...) for an nn.embedding(vocab, dim)")
  end
  local info = { tp_styles = { vocab = true }, params = {}, shares = from }
  if how.bias then param(info, "bias", { n_out }, { init = inits[nn.zeros], style = bias_style }) end
  return new_module("linear", function(_, x)
    local id = check.tensor(who, "the input", x, 3)
    if x.shape[3] ~= n_in then
      core.fail("shape-mismatch", ("%s needs in_features = %d, but its input has shape %s"):format(who, n_in,
        shape_text(x.shape)))
    end
    return add_bias(op("linear_t", nil, id, use(own)), info)
  end, {}, info)
end)

nn.embedding = core.wrap(function(vocab, dim, options)
  local who = "nn.embedding"
  vocab, dim = check.count(who, "vocab", vocab), check.count(who, "dim", dim)
  options = check.options(who, options, known[who])
  local info = { tp_styles = { vocab = true }, params = {} }
  local own = param(info, "weight", { vocab, dim },
    { init = check.init(who, options.init, standard), embedding = true })
  return new_module("embedding", function(_, ids)
    return op("embed", nil, check.tensor(who, "the input", ids, 2), use(own))
  end, {}, info)
end)

-- nn.position: adds a learned vector for each position. The weight has one row for each token of a
-- sequence; max_len is only the upper bound of that number.
nn.position = core.wrap(function(max_len, dim, options)
  local who = "nn.position"
  max_len, dim = check.count(who, "max_len", max_len), check.count(who, "dim", dim)
  options = check.options(who, options, known[who])
  local how = { init = check.init(who, options.init, standard), embedding = true }
  local info = { params = {} }
  return new_module("position", function(_, x)
    local id = check.tensor(who, "the input", x, 3)
    if x.shape[3] ~= dim or x.shape[2] > max_len then
      core.fail(x.shape[2] > max_len and "out-of-range" or "shape-mismatch",
        ("%s(%d, %d) cannot be added to shape %s"):format(who, max_len, dim, shape_text(x.shape)),
        x.shape[2] > max_len and ("seq may be %d at most"):format(max_len) or nil)
    end
    return op("position", nil, id, use(param(info, "weight", { x.shape[2], dim }, how)))
  end, {}, info)
end)

local function check_last(who, x, dim)
  local id = check.tensor(who, "the input", x, 3)
  if x.shape[3] ~= dim then
    core.fail("shape-mismatch", ("%s(%d): the input has shape %s"):format(who, dim,
      shape_text(x.shape)), ("its last dimension must be %d"):format(dim))
  end
  return id
end

local function check_eps(who, value)
  local eps = check.number(who, "eps", value, 1e-5)
  if eps < 0 then core.fail("out-of-range", who .. ": eps must not be negative") end
  return eps
end

nn.rmsnorm = core.wrap(function(dim, options)
  local who = "nn.rmsnorm"
  dim = check.count(who, "dim", dim)
  options = check.options(who, options, known[who])
  local eps, info = check_eps(who, options.eps), { params = {} }
  local weight = param(info, "weight", { dim }, { init = check.init(who, options.init, nn.ones) })
  return new_module("rmsnorm", function(_, x)
    if tensors[x] and #x.shape > 3 and x.shape[#x.shape] == dim then  -- x is [b, s, heads..., dim]: each head is normalised
      check.one_segment(who, tensors[x])
      return op("rmsnorm_heads", { eps = eps }, tensors[x], use(weight))
    end
    return op("rmsnorm", { eps = eps }, check_last(who, x, dim), use(weight))
  end, {}, info)
end)

nn.layernorm = core.wrap(function(dim, options)
  local who = "nn.layernorm"
  dim = check.count(who, "dim", dim)
  options = check.options(who, options, known[who])
  local eps, info = check_eps(who, options.eps), { params = {} }
  local weight = param(info, "weight", { dim }, { init = check.init(who, options.init, nn.ones) })
  local bias = param(info, "bias", { dim }, { init = inits[nn.zeros] })
  return new_module("layernorm", function(_, x)
    return op("layernorm", { eps = eps }, check_last(who, x, dim), use(weight), use(bias))
  end, {}, info)
end)

-- ---- functions

local function activation(name)
  return core.wrap(function(x) return op(name, nil, check.tensor("nn." .. name, "the input", x)) end)
end
nn.silu, nn.gelu = activation "silu", activation "gelu"
-- nn.quick_gelu: x sigmoid(1.702 x), as in CLIP and Qwen2-VL (Hendrycks and Gimpel, arXiv
-- 1606.08415). It is built from three ops, and only one of them keeps a tensor for the backward
-- pass.
nn.quick_gelu = core.wrap(function(x)
  check.tensor("nn.quick_gelu", "the input", x)
  return nn.scale(nn.silu(nn.scale(x, 1.702)), 1 / 1.702)
end)
nn.sigmoid, nn.relu, nn.relu2 = activation "sigmoid", activation "relu", activation "relu2"
nn.scale = core.wrap(function(x, factor)
  local id = check.tensor("nn.scale", "the input", x)
  factor = check.number("nn.scale", "the factor", factor)
  if not factor then core.fail("missing-key", "nn.scale: the factor is missing", "nn.scale(x, 2.0)") end
  return op("scale", { scale = factor }, id)
end)

nn.soft_cap = core.wrap(function(x, cap)
  local id = check.tensor("nn.soft_cap", "the input", x)
  cap = check.number("nn.soft_cap", "the cap", cap)
  if not cap or cap <= 0 then core.fail("out-of-range", "nn.soft_cap: the cap must be positive", "nn.soft_cap(x, 30.0)") end
  return op("soft_cap", { scale = cap }, id)
end)

nn.sinusoid = core.wrap(function(x, options)
  local who = "nn.sinusoid"
  options = check.options(who, options, known[who])
  local id, theta = check.tensor(who, "the input", x, 3), check.number(who, "theta", options.theta, 10000.0)
  if theta <= 1 or x.shape[3] % 2 ~= 0 or x.shape[3] < 4 then
    core.fail("out-of-range", ("%s: theta = %s, shape %s"):format(who, theta, shape_text(x.shape)),
      "theta must be above 1, and the number of features even and at least 4")
  end
  return op("sinusoid", { theta = theta }, id)
end)

-- nn.span: takes the tokens `first` to first + count - 1 of each sequence. x may hold token ids,
-- labels or activations.
nn.span = core.wrap(function(x, first, count)
  local who = "nn.span"
  local id = check.tensor(who, "the input", x)
  first, count = math.tointeger(first) or -1, check.count(who, "count", count)
  if first < 0 or #x.shape < 2 or first + count > x.shape[2] then
    core.fail("out-of-range", ("%s: tokens %s to %s do not exist in shape %s"):format(who, first, first + count - 1, shape_text(x.shape)),
      "first counts from 0; first + count must not exceed the tokens of a sequence")
  end
  return op("span", { first = first, count = count }, id)
end)

-- Keys of the option scaling. Llama 3.1's scaling divides the frequency of a pair by `factor` if
-- the pair turns only a few times within the original context.
local scaling_keys = { kind = true, factor = true, low = true, high = true, context = true }
local yarn_keys = { kind = true, factor = true, slow = true, fast = true, context = true, truncate = true, mscale = true,
  mscale_all_dim = true }

-- Sets the attributes of YaRN (arXiv 2309.00071). If a pair turns fewer than `slow` times within
-- the original context, its frequency is divided by `factor`. If it turns more than `fast` times,
-- it keeps its frequency. YaRN also multiplies queries and keys by a number. Returns the number by
-- which latent attention multiplies its scores: (0.1 mscale_all_dim ln(factor) + 1)^2.
local function yarn_attrs(who, attrs, scaling)
  check.options(who .. " scaling", scaling, yarn_keys)
  if scaling.factor == nil or scaling.context == nil then
    core.fail("missing-key", who .. ": YaRN needs factor and context (the original length)", "for example { kind = 'yarn', factor = 32, context = 4096 }")
  end
  local factor, slow = check.number(who, "factor", scaling.factor), check.number(who, "slow", scaling.slow, 1.0)
  local fast = check.number(who, "fast", scaling.fast, 32.0)
  if factor < 1 or slow <= 0 or fast < slow or attrs.theta <= 1 then
    core.fail("out-of-range", ("%s: YaRN with factor = %g, slow = %g, fast = %g, theta = %g"):format(who, factor, slow,
      fast, attrs.theta), "needed are factor >= 1, slow > 0, fast >= slow and theta > 1")
  end
  if (scaling.mscale == nil) ~= (scaling.mscale_all_dim == nil) then
    core.fail("missing-key", who .. ": mscale needs mscale_all_dim, and the other way round", "give both or neither")
  end
  local function gain(mscale) return 0.1 * mscale * math.log(factor) + 1 end
  local all = check.number(who, "mscale_all_dim", scaling.mscale_all_dim, 0.0)
  attrs.rope_yarn = check.flag(who, "truncate", scaling.truncate, true) and 2 or 1
  attrs.rope_factor, attrs.rope_low, attrs.rope_high = factor, slow, fast
  attrs.rope_context = check.count(who, "context", scaling.context)
  local longer = all == 0 and gain(1) or gain(check.number(who, "mscale", scaling.mscale)) / gain(all)
  if longer ~= 1 then attrs.rope_gain = longer end
  return gain(all) ^ 2
end

-- Checks the scaling of Llama 3.1. If a pair turns at most `low` times within the original context,
-- its frequency is divided by `factor`. If it turns at least `high` times, it keeps its frequency.
local function check_ramp(who, factor, low, high)
  local what = ("%s: rope_scaling has factor = %g, low = %g, high = %g"):format(who, factor, low, high)
  if factor < 1 then
    core.fail("out-of-range", what, "factor must be 1 or more: factor = 1 keeps all frequencies, and leaving out rope_scaling does the same")
  end
  if low < 0 then core.fail("out-of-range", what, "low and high must not be negative: low = 0") end
  if low > high then core.fail("out-of-range", what, ("low must not be above high: low = %g"):format(high)) end
end

local function rope_attrs(who, theta, scaling, image)
  local attrs, scores = { theta = check.number(who, "theta", theta, 10000.0) }, 1
  if attrs.theta <= 0 then core.fail("out-of-range", who .. ": theta must be positive") end
  attrs.image = image and rope_image.read(who, image)
  local kind = type(scaling) == "table" and scaling.kind or nil
  if kind ~= nil and kind ~= "yarn" and kind ~= "longrope" then
    core.fail("unknown-word", ("%s: the kind of scaling is unknown: %s"):format(who, check.value_text(kind)),
      "use kind = 'yarn' or 'longrope', or leave out kind for the scaling of Llama 3.1")
  end
  if kind == "longrope" then
    attrs.by_length = longrope.read(who, scaling)
  elseif kind then
    scores = yarn_attrs(who, attrs, scaling)
  elseif scaling then
    check.options(who .. " scaling", scaling, scaling_keys)
    attrs.rope_factor = check.number(who, "factor", scaling.factor, 8.0)
    attrs.rope_low = check.number(who, "low", scaling.low, 1.0)
    attrs.rope_high = check.number(who, "high", scaling.high, 4.0)
    attrs.rope_context = check.count(who, "context", scaling.context, 8192)
    check_ramp(who, attrs.rope_factor, attrs.rope_low, attrs.rope_high)
  end
  return attrs, scores
end

-- Checks the option rope_dims: the number of elements of a head that are rotated, counted from the
-- first. Returns this number, or 0 if all `size` elements are rotated.
local function rope_dims(who, dims, size)
  if dims == nil then return 0 end
  dims = check.count(who, "rope_dims", dims)
  if dims % 2 ~= 0 or dims > size then
    core.fail("out-of-range", ("%s: rope_dims = %d must be even and at most head_dim = %d"):format(who, dims,
      size))
  end
  return dims < size and dims or 0
end

local function rope(who, x, attrs)
  local id = check.tensor(who, "the input", x)
  if #x.shape < 3 or x.shape[#x.shape] % 2 ~= 0 then
    core.fail("shape-mismatch", ("%s rotates pairs of numbers, but shape %s has an odd last dimension"):format(who,
      shape_text(x.shape)), "head_dim must be even")
  end
  check.one_segment(who, id)
  local image, turned = attrs.image, (attrs.rope_dims or 0) > 0 and attrs.rope_dims or x.shape[#x.shape]
  if attrs.by_length then attrs = longrope.attrs(who, attrs, x.shape) end
  if image then
    attrs = setmetatable({}, { __index = attrs })
    rope_image.add(who, attrs, image, x.shape, turned)
  end
  return op("rope", attrs, id)
end
nn.rope = core.wrap(function(x, options)
  options = check.options("nn.rope", options, known["nn.rope"])
  return rope("nn.rope", x, (rope_attrs("nn.rope", options.theta, options.scaling, options.image)))
end)

-- Checks the probability with which dropout drops an element: at least 0 and less than 1.
local function check_drop(who, value)
  local drop = check.number(who, "p", value, 0.0)
  if not (drop >= 0 and drop < 1) then
    core.fail("out-of-range", ("%s: p = %s must be at least 0 and less than 1"):format(who, drop),
      drop == 1 and "leave out the layer, because nothing would remain of it" or "p is the fraction to drop, as in p = 0.1")
  end
  return drop
end

-- nn.dropout: each call in the model draws its own random numbers.
nn.dropout = core.wrap(function(x, p)
  local id, drop = check.tensor("nn.dropout", "the input", x), check_drop("nn.dropout", p)
  if p == nil then core.fail("missing-key", "nn.dropout: p is missing", "nn.dropout(x, 0.1)") end
  return drop == 0 and x or op("dropout", { drop = drop }, id)
end)

nn.cross_entropy = core.wrap(function(logits, labels, options)
  local who = "nn.cross_entropy"
  options = check.options(who, options, known[who])
  local smoothing = check.number(who, "label_smoothing", options.label_smoothing, 0.0)
  local z_loss = check.number(who, "z_loss", options.z_loss, 0.0)
  if not (smoothing >= 0 and smoothing < 1) then
    core.fail("out-of-range", ("%s: label_smoothing = %s must be at least 0 and less than 1"):format(who,
      smoothing))
  end
  if not (z_loss >= 0 and z_loss < math.huge) then
    core.fail("out-of-range", ("%s: z_loss = %s must not be negative"):format(who, z_loss))
  end
  local z = check.tensor(who, "logits", logits, 3)
  local y = check.tensor(who, "labels", labels, 2)
  if logits.shape[1] ~= labels.shape[1] or logits.shape[2] ~= labels.shape[2] then
    core.fail("shape-mismatch", ("%s: logits of shape %s do not belong to labels of shape %s"):format(who,
      shape_text(logits.shape), shape_text(labels.shape)))
  end
  local max = op("xent_max", nil, z)
  local pick = smoothing > 0 and op("xent_smooth", { smoothing = smoothing }, z, y)
    or op("xent_pick", nil, z, y)
  local sum = op("xent_sumexp", nil, z, tensors[max])
  if module.balance then pick = op("charge", nil, tensors[pick], tensors[module.balance]) end
  return op("xent_loss", { z_loss = z_loss }, tensors[max], tensors[sum], tensors[pick], y)
end)

-- ---- attention

attention.add(nn, { linear = linear, rope = rope, rope_attrs = rope_attrs, rope_dims = rope_dims, check_drop = check_drop,
  check_last = check_last, check_norm = check_norm, check_eps = check_eps, standard = standard })

state_space.add(nn, { linear = linear, check_last = check_last, check_eps = check_eps, standard = standard })

-- ---- mixture of experts

nn.moe = experts.moe(nn, standard)

-- ---- fields

fields.add(nn, known, standard, check_norm, over_norm)
images.add(nn, known, standard)

families.add(nn)

for name in pairs(nn) do
  if not known["nn." .. name] then error("nn_reference.lua has no entry for nn." .. name) end
end
setmetatable(nn, { __index = core.wrap(function(_, key)
  core.fail("unknown-name", ("tandem.nn has no '%s'"):format(tostring(key)),
    core.near(tostring(key), words(nn)))
end) })
return setmetatable({}, { __metatable = false, __index = nn,
  __newindex = core.wrap(function(_, key)
    core.fail("frozen", ("tandem.nn cannot be changed: nn.%s = ..."):format(tostring(key)))
  end) })
