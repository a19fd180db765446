-- The tensors and modules of a model. When a parameter is first used, it becomes a tensor of the
-- graph.
local _, core = ...
local check = require "tandem.check"
local modules, tensors, inits = check.modules, check.tensors, check.inits
local kind_of, shape_text, words = check.kind_of, check.shape_text, check.words

local m = {}       -- functions of this file that the rest of the library calls
local current = 0  -- id of the module whose `forward` is running now

local is_option = { forward = true, tp_col = true, tp_row = true, tp_vocab = true,
  fsdp2_shard = true }

-- ---- tensors

local tensor_meta = { __metatable = false }

local function tensor(id)
  local t = setmetatable({ shape = core.dims(id) }, tensor_meta)
  tensors[t] = id
  return t
end

-- Adds an op to the graph, and returns its output. If the output has four dimensions, it keeps the
-- segments of the first input.
local function op(name, attrs, first, ...)
  local result = tensor(core.op(name, current, attrs, first, ...))
  local own = check.segments[first]
  if own and #result.shape == 4 then check.segments[tensors[result]] = own end
  return result
end

local function pointwise(name, sign)
  return core.wrap(function(a, b)
    local who = ("tensor %s tensor"):format(sign)
    local left, right = check.tensor(who, "the left side", a), check.tensor(who, "the right side", b)
    local same = #a.shape == #b.shape
    for i, n in ipairs(a.shape) do same = same and b.shape[i] == n end
    if same and check.segments[left] ~= check.segments[right] then
      core.fail("fused-segments", who .. ": only one of the two sides consists of segments",
        "take one segment: nn.segment(x, i)")
    end
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
-- ---- modules

-- Adds a module to the graph when it is first called, after its parents, and returns its id. Blocks
-- are numbered in the order in which they run.
local n_blocks = 0
local function place_module(info)
  if info.id then return info.id end
  if not info.path then
    core.fail("module-outside", "this module is not a field of the model",
      "make it a field of the module that uses it")
  end
  local parent = info.parent and place_module(info.parent) or 0
  info.layer = info.parent and info.parent.layer or 0
  if info.is_block then n_blocks = n_blocks + 1; info.layer = n_blocks end
  info.id = core.module(info.path, info.class, parent, info.is_block, info.fsdp2_shard, info.layer,
    info.location)
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
  if modules[m].is_list and math.type(key) == "integer" then return nil end  -- nil ends a loop with ipairs
  core.fail("unknown-key", ("nn.%s has no field '%s'"):format(modules[m].class, tostring(key)),
    core.near(tostring(key), words(m)))
end)

-- A lower bound of the number of records that tracing the model creates. Each module adds at least
-- itself. A module with parameters also adds a parameter, an op that reads it, and the op's result.
local n_expected = 0

local function new_module(class, forward, fields, extra)
  local info = extra or {}
  info.class, info.forward, info.location = class, forward, core.location()
  info.params = info.params or {}
  n_expected = n_expected + (next(info.params) and 4 or 1)
  modules[fields] = info
  return setmetatable(fields, module_meta)
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
        misspelt and "is this forward: " .. misspelt:match "'.*'" or "forward = function(m, x) ... end")
    end
    local own = { is_block = is_block, styles = {} }
    own.fsdp2_shard = check.flag(who, "fsdp2_shard", rawget(fields, "fsdp2_shard"), false)
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
m.module, m.block = compound("module", false), compound("block", true)

-- Makes a list of modules: nn.list { a, b, c }, or nn.list(n, function(i) return a end), where i
-- begins with 0 as in paths. Calling the list calls its elements, each with the output of the one
-- before.
m.list = core.wrap(function(items, make)
  local list = {}
  if type(items) == "table" and not modules[items] and not tensors[items] then
    for i = 1, #items do
      check.module("nn.list", "item " .. i, items[i])
      list[i] = items[i]
    end
  else
    for i = 1, check.count("nn.list", "the number of modules", items) do
      if type(make) ~= "function" then
        core.fail("wrong-type", "nn.list(n, make): make must be a function, not " .. kind_of(make))
      end
      list[i] = make(i - 1)
      check.module("nn.list", "what make returns", list[i])
      if n_expected > core.most then
        core.fail("out-of-range", ("nn.list(%d, make): the model has more than %d modules, tensors and ops"):format(
          items, core.most), ("%d are too many already"):format(i))
      end
    end
  end
  return new_module("list", function(m, x)
    for _, each in ipairs(m) do x = each(x) end
    return x
  end, list, { is_list = true })
end)

-- ---- parameters

-- Returns the record of a module's parameter. `use` turns the record into a tensor of the graph
-- when the parameter is first used, so the graph has parameters in the order of their first use.
local function param(info, name, dims, how)
  local own = info.params[name]
  if not own then
    own = { dims = dims, init = how.init, column = how.column or 0, row = how.row or 0,
      style = how.style, embedding = how.embedding or false, order = how.order, info = info, name = name }
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
    own.id = core.param(path, id, info.location, style, own.column, own.row, own.init[1], own.init[2],
      own.init[3], own.embedding, own.order, table.unpack(own.dims))
  end
  return own.id
end

-- Returns a tensor that lives between steps. Its first values are drawn like those of a weight.
local function state(info, name, dims, order)
  local id = place_module(info)
  return core.state(info.path ~= "" and info.path .. "." .. name or name, id, info.location, order,
    table.unpack(dims))
end

-- Returns how tp splits a bias if it splits the weight by `style`. The bias of a linear that is
-- split by rows is added after the sum over ranks, so every rank has it whole.
local function bias_style(style) return style == "row" and "none" or style or "none" end

local function add_bias(x, info)
  local own = info.params.bias
  return own and op("bias", nil, tensors[x], use(own)) or x
end

m.offsets = {} -- ["8x8"]: the tensor of offsets (nn.window_offsets) of a window of this size
m.balance = false  -- the sum of the balance losses of all mixtures of experts, one number for each sample [b]; false: none
m.tensor, m.op, m.new_module, m.place_module = tensor, op, new_module, place_module
m.param, m.use, m.state, m.add_bias, m.bias_style = param, use, state, add_bias, bias_style
return m
