-- tandem.nn: modules and functions in the shape of torch.nn. Calling a module traces it: each op
-- appends to the graph, shapes are checked on the line that calls. Knows no parallelism; tp_col,
-- tp_row, tp_vocab and fsdp2_shard are notes for the passes.
local _, core = ...
local nn = {}

local modules = {}  -- module -> what we know of it
local tensors = {}  -- tensor -> its id in the graph
local current = 0   -- id of the module whose forward runs

local is_option = { forward = true, tp_col = true, tp_row = true, tp_vocab = true,
  fsdp2_shard = true }

local function words(t)
  local list = {}
  for key in pairs(t) do if type(key) == "string" then list[#list + 1] = key end end
  return list
end

local function kind_of(value)
  if type(value) ~= "table" then return type(value) end
  if modules[value] then return "module (nn." .. modules[value].class .. ")" end
  return tensors[value] and "tensor" or "table"
end

local function shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- ---- checks of arguments

local function check_count(who, what, value, default)
  if value == nil and default ~= nil then return default end
  if math.type(value) == "float" and math.tointeger(value) then value = math.tointeger(value) end
  if math.type(value) ~= "integer" then
    core.fail("wrong-type", ("%s: %s must be an integer, not %s"):format(who, what, kind_of(value)))
  end
  if value < 1 or value > 1 << 30 then
    core.fail("out-of-range", ("%s: %s = %d must be between 1 and 2^30"):format(who, what, value))
  end
  return value
end

local function check_number(who, what, value, default)
  if value == nil then return default end
  if type(value) ~= "number" then
    core.fail("wrong-type", ("%s: %s must be a number, not %s"):format(who, what, kind_of(value)))
  end
  if not (value > -1e300 and value < 1e300) then
    core.fail("out-of-range", ("%s: %s is not finite"):format(who, what))
  end
  return value + 0.0
end

local function check_options(who, options, known)
  if options == nil then return {} end
  if type(options) ~= "table" or modules[options] or tensors[options] then
    core.fail("wrong-type", ("%s: options must be a table, not %s"):format(who, kind_of(options)))
  end
  for key in pairs(options) do
    if not known[key] then
      core.fail("unknown-key", ("unknown key '%s' in %s"):format(tostring(key), who),
        core.near(tostring(key), words(known)) or "keys: " .. table.concat(words(known), ", "))
    end
  end
  return options
end

local function check_flag(who, what, value, default)
  if value == nil then return default end
  if type(value) ~= "boolean" then
    core.fail("wrong-type", ("%s: %s must be true or false, not %s"):format(who, what, kind_of(value)))
  end
  return value
end

-- ---- tensors

local tensor_meta = { __metatable = false }

local function tensor(id)
  local t = setmetatable({ shape = core.dims(id) }, tensor_meta)
  tensors[t] = id
  return t
end

local function check_tensor(who, what, value, n_dims)
  if not tensors[value] then
    core.fail("wrong-type", ("%s: %s must be a tensor, not %s"):format(who, what, kind_of(value)),
      modules[value] and "call the module to get its output" or nil)
  end
  if n_dims and #value.shape ~= n_dims then
    core.fail("shape-mismatch", ("%s: %s has shape %s, expected %d dimensions"):format(who, what,
      shape_text(value.shape), n_dims))
  end
  return tensors[value]
end

local function op(name, attrs, ...) return tensor(core.op(name, current, attrs, ...)) end

local function pointwise(name, sign)
  return core.wrap(function(a, b)
    local who = ("tensor %s tensor"):format(sign)
    local left, right = check_tensor(who, "the left side", a), check_tensor(who, "the right side", b)
    local same = #a.shape == #b.shape
    for i, n in ipairs(a.shape) do same = same and b.shape[i] == n end
    if not same then
      core.fail("shape-mismatch", ("%s: shapes %s and %s differ"):format(who, shape_text(a.shape),
        shape_text(b.shape)), "both sides must have the same shape; there is no broadcasting")
    end
    return op(name, nil, left, right)
  end)
end
tensor_meta.__add = pointwise("add", "+")
tensor_meta.__mul = pointwise("mul", "*")
tensor_meta.__tostring = core.wrap(function(t) return "tensor " .. shape_text(t.shape) end)
tensor_meta.__index = core.wrap(function(_, key)
  core.fail("unknown-key", ("a tensor has no field '%s'"):format(tostring(key)),
    "it has shape, + and *")
end)

-- ---- initial values

local inits = {}
local function init(kind, a, b)
  local value = {}
  inits[value] = { kind, a, b }
  return value
end
nn.zeros, nn.ones = init("zeros", 0.0, 0.0), init("ones", 0.0, 0.0)
nn.normal = core.wrap(function(mean, deviation)
  return init("normal", check_number("nn.normal", "the mean", mean, 0.0),
    check_number("nn.normal", "the deviation", deviation, 1.0))
end)
nn.uniform = core.wrap(function(from, to)
  return init("uniform", check_number("nn.uniform", "from", from, 0.0),
    check_number("nn.uniform", "to", to, 1.0))
end)

local function check_init(who, value, default)
  if value == nil then return inits[default] end
  if not inits[value] then
    core.fail("wrong-type", ("%s: init must be nn.normal(mean, deviation), nn.uniform(from, to), nn.zeros "
      .. "or nn.ones, not %s"):format(who, kind_of(value)))
  end
  return inits[value]
end
local standard = init("normal", 0.0, 0.02)

-- ---- modules

-- Records the module (its parents first) when it is first called; blocks are numbered as they run.
local n_blocks = 0
local function place_module(info)
  if info.id then return info.id end
  if not info.path then
    core.fail("module-outside", "this module is not part of the model",
      "make modules in build, as fields of the module that uses them")
  end
  local parent = info.parent and place_module(info.parent) or 0
  info.layer = info.parent and info.parent.layer or 0
  if info.is_block then n_blocks = n_blocks + 1; info.layer = n_blocks end
  info.id = core.module(info.path, info.class, parent, info.is_block, info.fsdp2_shard, info.layer,
    info.place)
  return info.id
end

local function enter(module, ...)
  local info = modules[module]
  local before = current
  current = place_module(info)
  local result = table.pack(info.forward(module, ...))
  current = before
  return table.unpack(result, 1, result.n)
end

local module_meta = { __metatable = false, __call = core.wrap(enter) }
module_meta.__tostring = core.wrap(function(m) return "nn." .. modules[m].class end)
module_meta.__index = core.wrap(function(m, key)
  if modules[m].is_list and math.type(key) == "integer" then return nil end  -- where ipairs ends
  core.fail("unknown-key", ("nn.%s has no field '%s'"):format(modules[m].class, tostring(key)),
    core.near(tostring(key), words(m)))
end)

local function new_module(class, forward, fields, extra)
  local info = extra or {}
  info.class, info.forward, info.place = class, forward, core.place()
  info.params = info.params or {}
  modules[fields] = info
  return setmetatable(fields, module_meta)
end

local function check_module(who, what, value)
  if not modules[value] then
    core.fail("wrong-type", ("%s: %s must be a module, not %s"):format(who, what, kind_of(value)))
  end
  return modules[value]
end

local function string_list(who, key, value)
  if value == nil then return {} end
  local list = type(value) == "string" and { value } or value
  if type(list) ~= "table" then
    core.fail("wrong-type", ("%s: %s must be a path or a list of paths, not %s"):format(who, key,
      kind_of(value)))
  end
  for _, path in pairs(list) do
    if type(path) ~= "string" then
      core.fail("wrong-type", ("%s: %s must hold paths, not %s"):format(who, key, kind_of(path)))
    end
  end
  return list
end

local function compound(class, is_block)
  local who = "nn." .. class
  return core.wrap(function(fields)
    if type(fields) ~= "table" or modules[fields] or tensors[fields] then
      core.fail("wrong-type", ("%s needs a table of fields, not %s"):format(who, kind_of(fields)),
        ("write %s { ..., forward = function(m, x) ... end }"):format(who))
    end
    local forward = rawget(fields, "forward")
    if type(forward) ~= "function" then
      local misspelt = forward == nil and core.near("forward", words(fields))
      core.fail(forward == nil and "missing-key" or "wrong-type",
        ("%s: forward must be a function, not %s"):format(who, kind_of(forward)),
        misspelt or "forward = function(m, x) ... end")
    end
    local own = { is_block = is_block, styles = {} }
    own.fsdp2_shard = check_flag(who, "fsdp2_shard", rawget(fields, "fsdp2_shard"), false)
    for key, style in pairs { tp_col = "column", tp_row = "row", tp_vocab = "vocab" } do
      for _, path in ipairs(string_list(who, key, rawget(fields, key))) do
        own.styles[#own.styles + 1] = { key = key, path = path, style = style }
      end
    end
    local kept = {}
    for key, value in pairs(fields) do
      if type(key) ~= "string" or not key:match "^[%a_][%w_]*$" or #key > 64 then
        core.fail("unknown-key", ("%s: a field must be a name, not %s"):format(who, tostring(key)),
          "nn.list { ... } holds modules by number")
      end
      if not is_option[key] then
        if type(value) == "table" and not modules[value] and rawlen(value) > 0 and modules[value[1]] then
          core.fail("wrong-type", ("%s: '%s' is a plain table of modules"):format(who, key),
            ("write %s = nn.list { ... }"):format(key))
        end
        kept[key] = value
      end
    end
    return new_module(class, forward, kept, own)
  end)
end
nn.module, nn.block = compound("module", false), compound("block", true)

-- nn.list { a, b, c } or nn.list(n, function(i) return a end), i from 0 as in its paths. Called,
-- it applies one after the other.
nn.list = core.wrap(function(items, make)
  local list = {}
  if type(items) == "table" and not modules[items] and not tensors[items] then
    for i = 1, #items do
      check_module("nn.list", "item " .. i, items[i])
      list[i] = items[i]
    end
  else
    for i = 1, check_count("nn.list", "the number of modules", items) do
      if type(make) ~= "function" then
        core.fail("wrong-type", "nn.list(n, make): make must be a function, not " .. kind_of(make))
      end
      list[i] = make(i - 1)
      check_module("nn.list", "what make returns", list[i])
    end
  end
  return new_module("list", function(m, x)
    for _, each in ipairs(m) do x = each(x) end
    return x
  end, list, { is_list = true })
end)

-- ---- parameters

-- Parameters become tensors when first used, so their order is the order of use.
local function param(info, name, dims, how)
  local own = info.params[name]
  if not own then
    own = { dims = dims, init = how.init, column = how.column or 0, row = how.row or 0,
      style = how.style, embedding = how.embedding or false, info = info, name = name }
    info.params[name] = own
  end
  return own
end

local function use(own)
  if not own.id then
    local info = own.info
    local id = place_module(info)
    local path = info.path ~= "" and info.path .. "." .. own.name or own.name
    local style = own.style and own.style(info.style) or info.style or "none"
    own.id = core.param(path, id, info.place, style, own.column, own.row, own.init[1], own.init[2],
      own.init[3], own.embedding, table.unpack(own.dims))
  end
  return own.id
end

-- The bias of a row linear is added after the sum, so it is whole on every rank.
local function bias_style(style) return style == "row" and "none" or style or "none" end

local function add_bias(x, info)
  local own = info.params.bias
  return own and op("bias", nil, tensors[x], use(own)) or x
end

-- A linear map by one of the contractions; n_in: how many dimensions of x it sums over.
local function linear(who, op_name, in_dims, out_dims, column, how)
  local dims, bias = {}, {}
  for _, n in ipairs(in_dims) do dims[#dims + 1] = n end
  for _, n in ipairs(out_dims) do dims[#dims + 1] = n; bias[#bias + 1] = n end
  local info = { tp_styles = { column = true, row = true, vocab = true }, params = {} }
  local own = param(info, "weight", dims, { init = how.init, column = column, row = 0 })
  if how.bias then param(info, "bias", bias, { init = inits[nn.zeros], style = bias_style }) end
  local function forward(m, x)
    local id = check_tensor(who, "the input", x, 2 + #in_dims)
    for i, n in ipairs(in_dims) do
      if x.shape[2 + i] ~= n then
        core.fail("shape-mismatch", ("%s %s expects %s = %d, got shape %s"):format(who,
          modules[m].path or "", #in_dims == 1 and "in_features" or "heads x head_dim", n,
          shape_text(x.shape)))
      end
    end
    return add_bias(op(op_name, nil, id, use(own)), info)
  end
  return new_module("linear", forward, {}, info)
end

local linear_options = { bias = true, init = true, weight = true }
nn.linear = core.wrap(function(n_in, n_out, options)
  local who = "nn.linear"
  n_in, n_out = check_count(who, "in_features", n_in), check_count(who, "out_features", n_out)
  options = check_options(who, options, linear_options)
  local bias = check_flag(who, "bias", options.bias, false)
  if options.weight == nil then
    return linear(who, "linear", { n_in }, { n_out }, 1,
      { bias = bias, init = check_init(who, options.init, standard) })
  end
  local from = check_module(who, "weight", options.weight)
  if from.class ~= "embedding" then
    core.fail("wrong-type", ("%s: weight must be an nn.embedding to share, not nn.%s"):format(who,
      from.class))
  end
  local own = from.params.weight
  if own.dims[1] ~= n_out or own.dims[2] ~= n_in then
    core.fail("shape-mismatch", ("%s: (%d, %d) cannot share a weight of nn.embedding(%d, %d)"):format(
      who, n_in, n_out, own.dims[1], own.dims[2]), "a tied head is nn.linear(dim, vocab, ...)")
  end
  local info = { tp_styles = { vocab = true }, params = {}, shares = from }
  if bias then param(info, "bias", { n_out }, { init = inits[nn.zeros], style = bias_style }) end
  return new_module("linear", function(_, x)
    local id = check_tensor(who, "the input", x, 3)
    if x.shape[3] ~= n_in then
      core.fail("shape-mismatch", ("%s expects in_features = %d, got shape %s"):format(who, n_in,
        shape_text(x.shape)))
    end
    return add_bias(op("linear_t", nil, id, use(own)), info)
  end, {}, info)
end)

nn.embedding = core.wrap(function(vocab, dim, options)
  local who = "nn.embedding"
  vocab, dim = check_count(who, "vocab", vocab), check_count(who, "dim", dim)
  options = check_options(who, options, { init = true })
  local info = { tp_styles = { vocab = true }, params = {} }
  local own = param(info, "weight", { vocab, dim },
    { init = check_init(who, options.init, standard), embedding = true })
  return new_module("embedding", function(_, ids)
    return op("embed", nil, check_tensor(who, "the input", ids, 2), use(own))
  end, {}, info)
end)

-- Learned positions: a table of max_len rows of which a sequence uses the first seq. Rows that no
-- sequence reaches are left out.
nn.position = core.wrap(function(max_len, dim, options)
  local who = "nn.position"
  max_len, dim = check_count(who, "max_len", max_len), check_count(who, "dim", dim)
  options = check_options(who, options, { init = true })
  local how = { init = check_init(who, options.init, standard) }
  local info = { params = {} }
  return new_module("position", function(_, x)
    local id = check_tensor(who, "the input", x, 3)
    if x.shape[3] ~= dim or x.shape[2] > max_len then
      core.fail(x.shape[2] > max_len and "out-of-range" or "shape-mismatch",
        ("%s(%d, %d) cannot be added to shape %s"):format(who, max_len, dim, shape_text(x.shape)),
        x.shape[2] > max_len and ("seq may be %d at most"):format(max_len) or nil)
    end
    return op("position", nil, id, use(param(info, "weight", { x.shape[2], dim }, how)))
  end, {}, info)
end)

local function check_last(who, x, dim)
  local id = check_tensor(who, "the input", x, 3)
  if x.shape[3] ~= dim then
    core.fail("shape-mismatch", ("%s(%d): the input has shape %s"):format(who, dim,
      shape_text(x.shape)), ("its last dimension must be %d"):format(dim))
  end
  return id
end

local function check_eps(who, value)
  local eps = check_number(who, "eps", value, 1e-5)
  if eps < 0 then core.fail("out-of-range", who .. ": eps must not be negative") end
  return eps
end

nn.rmsnorm = core.wrap(function(dim, options)
  local who = "nn.rmsnorm"
  dim = check_count(who, "dim", dim)
  options = check_options(who, options, { eps = true })
  local eps, info = check_eps(who, options.eps), { params = {} }
  local weight = param(info, "weight", { dim }, { init = inits[nn.ones] })
  return new_module("rmsnorm", function(_, x)
    return op("rmsnorm", { eps = eps }, check_last(who, x, dim), use(weight))
  end, {}, info)
end)

nn.layernorm = core.wrap(function(dim, options)
  local who = "nn.layernorm"
  dim = check_count(who, "dim", dim)
  options = check_options(who, options, { eps = true })
  local eps, info = check_eps(who, options.eps), { params = {} }
  local weight = param(info, "weight", { dim }, { init = inits[nn.ones] })
  local bias = param(info, "bias", { dim }, { init = inits[nn.zeros] })
  return new_module("layernorm", function(_, x)
    return op("layernorm", { eps = eps }, check_last(who, x, dim), use(weight), use(bias))
  end, {}, info)
end)

-- ---- functions

local function activation(name)
  return core.wrap(function(x) return op(name, nil, check_tensor("nn." .. name, "the input", x)) end)
end
nn.silu, nn.gelu = activation "silu", activation "gelu"

-- Llama 3.1 stretches low frequencies by `factor` beyond the original context.
local scaling_keys = { factor = true, low = true, high = true, context = true }
local function rope_attrs(who, theta, scaling)
  local attrs = { theta = check_number(who, "theta", theta, 10000.0) }
  if attrs.theta <= 0 then core.fail("out-of-range", who .. ": theta must be positive") end
  if scaling then
    check_options(who .. " scaling", scaling, scaling_keys)
    attrs.rope_factor = check_number(who, "factor", scaling.factor, 8.0)
    attrs.rope_low = check_number(who, "low", scaling.low, 1.0)
    attrs.rope_high = check_number(who, "high", scaling.high, 4.0)
    attrs.rope_context = check_count(who, "context", scaling.context, 8192)
  end
  return attrs
end

local function rope(who, x, attrs)
  local id = check_tensor(who, "the input", x)
  if #x.shape < 3 or x.shape[#x.shape] % 2 ~= 0 then
    core.fail("shape-mismatch", ("%s rotates pairs: shape %s has an odd last dimension"):format(who,
      shape_text(x.shape)), "head_dim must be even")
  end
  return op("rope", attrs, id)
end
nn.rope = core.wrap(function(x, options)
  options = check_options("nn.rope", options, { theta = true, scaling = true })
  return rope("nn.rope", x, rope_attrs("nn.rope", options.theta, options.scaling))
end)

nn.cross_entropy = core.wrap(function(logits, labels)
  local who = "nn.cross_entropy"
  local z = check_tensor(who, "logits", logits, 3)
  local y = check_tensor(who, "labels", labels, 2)
  if logits.shape[1] ~= labels.shape[1] or logits.shape[2] ~= labels.shape[2] then
    core.fail("shape-mismatch", ("%s: logits %s do not fit labels %s"):format(who,
      shape_text(logits.shape), shape_text(labels.shape)))
  end
  local max = op("xent_max", nil, z)
  local pick = op("xent_pick", nil, z, y)
  local sum = op("xent_sumexp", nil, z, tensors[max])
  return op("xent_loss", nil, tensors[max], tensors[sum], tensors[pick], y)
end)

-- ---- attention: heads are dimensions of their own, grouped for GQA: q [b,s,g,r,e], k and v [b,s,g,e]

local attention_options = { dim = true, heads = true, kv_heads = true, head_dim = true, causal = true,
  bias = true, out_bias = true, rope_theta = true, rope_scaling = true, init = true, out_init = true }
nn.attention = core.wrap(function(options)
  local who = "nn.attention"
  if type(options) ~= "table" then
    core.fail("wrong-type", who .. " needs a table, not " .. kind_of(options),
      "nn.attention { dim = 512, heads = 8 }")
  end
  check_options(who, options, attention_options)
  local dim, heads = check_count(who, "dim", options.dim), check_count(who, "heads", options.heads)
  local groups = check_count(who, "kv_heads", options.kv_heads, heads)
  if heads % groups ~= 0 then
    core.fail("divides-heads", ("%s: heads = %d must be a multiple of kv_heads = %d"):format(who, heads,
      groups))
  end
  if options.head_dim == nil and dim % heads ~= 0 then
    core.fail("divides-heads", ("%s: dim = %d cannot be divided into %d heads"):format(who, dim, heads),
      "name head_dim, or choose heads that divide dim")
  end
  local size = check_count(who, "head_dim", options.head_dim, dim // heads)
  local causal = check_flag(who, "causal", options.causal, true)
  local how = { bias = check_flag(who, "bias", options.bias, false),
    init = check_init(who, options.init, standard) }
  local out = { bias = check_flag(who, "out_bias", options.out_bias, how.bias),
    init = check_init(who, options.out_init, options.init or standard) }
  local turn = options.rope_theta and rope_attrs(who, options.rope_theta, options.rope_scaling)
  if turn and size % 2 ~= 0 then
    core.fail("out-of-range", ("%s: head_dim = %d must be even to be rotated"):format(who, size))
  end
  local attrs = { scale = 1 / math.sqrt(size), causal = causal and 1 or 0 }
  local fields = {
    wq = linear(who, "linear_q", { dim }, { groups, heads // groups, size }, 1, how),
    wk = linear(who, "linear_kv", { dim }, { groups, size }, 1, how),
    wv = linear(who, "linear_kv", { dim }, { groups, size }, 1, how),
    wo = linear(who, "linear_o", { groups, heads // groups, size }, { dim }, 3, out),
  }
  return new_module("attention", function(m, x)
    check_last(who, x, dim)
    local q, k, v = m.wq(x), m.wk(x), m.wv(x)
    if turn then q, k = rope(who, q, turn), rope(who, k, turn) end
    return m.wo(op("attention", attrs, tensors[q], tensors[k], tensors[v]))
  end, fields)
end)

-- ---- from a model to its trace

-- Names a module and all below it; the first path that reaches a shared module is its name.
local function name_tree(module, path, parent, order)
  local info = modules[module]
  if info.path then return end
  info.path, info.parent = path, parent
  order[#order + 1] = module
  for key, value in pairs(module) do
    if modules[value] then
      local name = info.is_list and tostring(key - 1) or key
      name_tree(value, path == "" and name or path .. "." .. name, info, order)
    end
  end
end

local function find_module(module, path)
  for part in path:gmatch "[^.]+" do
    local info = modules[module]
    local key = info.is_list and math.tointeger(tonumber(part)) or part
    if info.is_list and type(key) == "number" then key = key + 1 end
    local inner = rawget(module, key)
    if not modules[inner] then
      local names = {}
      for name, value in pairs(module) do
        if modules[value] then
          names[#names + 1] = info.is_list and tostring(name - 1) or name
        end
      end
      return nil, part, names
    end
    module = inner
  end
  return modules[module]
end

local function assign_styles(module)
  local own = modules[module]
  for _, want in ipairs(own.styles or {}) do
    local info, part, names = find_module(module, want.path)
    if not info then
      core.fail("unknown-path", ("%s = '%s': there is no module '%s'"):format(want.key, want.path, part),
        core.near(part, names) or "there are: " .. table.concat(names, ", "), own.place)
    end
    if not (info.tp_styles and info.tp_styles[want.style]) then
      core.fail("tp-style", ("%s = '%s': nn.%s cannot be split that way"):format(want.key, want.path,
        info.class), "tp_col and tp_row take linears, tp_vocab embeddings and heads", own.place)
    end
    local target = info.shares or info
    if target.style and target.style ~= want.style then
      core.fail("tp-style", ("%s = '%s': it is split by %s already"):format(want.key, want.path,
        target.style), nil, own.place)
    end
    target.style, info.style = want.style, want.style
  end
end

local function build(model, mesh, shrink, seq, place)
  if modules[model] then return model, "model" end
  local known = { name = true, config = true, build = true, shrink = true }
  for key in pairs(model) do
    if not known[key] then
      core.fail("unknown-key", ("unknown key '%s' in model{}"):format(tostring(key)),
        core.near(tostring(key), words(known)), place)
    end
  end
  if type(model.build) ~= "function" then
    core.fail("missing-key", "the model has no build function",
      "a model is nn.module { ... } or { config = ..., build = function(config) ... end }", place)
  end
  local config = model.config
  if shrink and type(model.shrink) == "function" then
    config = model.shrink(config, mesh)
    if type(config) ~= "table" then
      core.fail("wrong-type", "the model's shrink must return a config", nil, place)
    end
    if config.seq then core.seq(check_count("shrink", "seq", config.seq)) end
  end
  local root = model.build(config)
  if not modules[root] then
    core.fail("wrong-type", "the model's build must return a module, not " .. kind_of(root), nil, place)
  end
  return root, type(model.name) == "string" and model.name or "model"
end

local function check_all_used(order)
  for _, module in ipairs(order) do
    local info = modules[module]
    for name, own in pairs(info.params) do
      if not own.id then
        core.fail("unused-parameter", ("%s.%s is never used: it would get no gradient"):format(info.path,
          name), "call the module in a forward function, or take it out", info.place)
      end
    end
  end
end

function core.trace(model, mesh, shrink, seq, place)
  local root, name = build(model, mesh, shrink, seq, place)
  core.name(name)
  local order = {}
  name_tree(root, "", nil, order)
  for _, module in ipairs(order) do assign_styles(module) end
  place_module(modules[root])
  local tokens, labels = core.batch(modules[root].place)
  local loss = root(tensor(tokens), tensor(labels))
  if not tensors[loss] or #loss.shape ~= 0 then
    core.fail("no-loss", ("the model's forward must return a loss, not %s"):format(tensors[loss]
      and "a tensor of shape " .. shape_text(loss.shape) or kind_of(loss)),
      "end it with nn.cross_entropy(logits, labels)", modules[root].place)
  end
  check_all_used(order)
  core.loss(tensors[loss])
end

return setmetatable(nn, { __metatable = false, __index = core.wrap(function(_, key)
  core.fail("unknown-name", ("tandem.nn has no '%s'"):format(tostring(key)),
    core.near(tostring(key), words(nn)))
end), __newindex = core.wrap(function(_, key)
  core.fail("frozen", ("tandem.nn cannot be changed: nn.%s = ..."):format(tostring(key)))
end) })
