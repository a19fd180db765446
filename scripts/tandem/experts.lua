-- Mixtures of experts. nn.moe sends tokens to experts and adds up what they return. experts.linear
-- multiplies the rows of each expert by its weight. An expert has a capacity for each sequence, so
-- only tokens of one sequence compete for it, and the same tokens are dropped for every division of
-- the batch over ranks.
local _, core = ...
local check = require "tandem.check"
local module = require "tandem.module"
local known = require("tandem.nn_reference").known
local modules, tensors = check.modules, check.tensors
local op, param, use, new_module = module.op, module.param, module.use, module.new_module
local experts = {}

-- Returns a module that multiplies each expert's rows by the expert's weight: [experts, b,
-- capacity, in_features] -> [experts, b, capacity, out_features]. With counts [experts, b], which
-- experts without dropped tokens have, it computes only the rows that hold a token.
function experts.linear(who, n, n_in, n_out, init, bias)
  local info = { tp_styles = { column = true, row = true }, params = {} }
  local own = param(info, "weight", { n, n_in, n_out }, { init = init, column = 2, row = 1 })
  if bias then
    param(info, "bias", { n, n_out }, { init = bias, style = module.bias_style, column = 1 })
  end
  return new_module("experts", function(m, rows, counts, sizes)
    local id = check.tensor(who, "the input", rows, 4)
    if rows.shape[1] ~= n or rows.shape[4] ~= n_in then
      core.fail("shape-mismatch", ("%s %s expects [%d experts, b, capacity, %d], got shape %s"):format(who,
        modules[m].path or "", n, n_in, check.shape_text(rows.shape)))
    end
    if counts then
      local y = op("linear_uneven", sizes, id, use(own), counts)
      return bias and op("bias_uneven", nil, tensors[y], use(info.params.bias), counts) or y
    end
    local y = op("linear_experts", nil, id, use(own))
    return bias and op("expert_bias", nil, tensors[y], use(info.params.bias)) or y
  end, {}, info)
end

-- Returns the number of tokens of one sequence that an expert takes. seq: the tokens of a sequence.
local function capacity_of(c, seq)
  if c.factor == "all" or c.factor == "dropless" then return seq end
  return math.max(1, math.min(seq, math.ceil(c.factor * seq * c.top_k / c.experts)))
end

local function read_factor(who, value)
  if value == "all" or value == "dropless" then return value end
  if type(value) == "string" then
    core.fail("unknown-word", ("%s: capacity_factor = '%s'"):format(who, value),
      "a number, or \"all\" or \"dropless\": no token is dropped, for any choice of experts")
  end
  if value ~= nil and type(value) ~= "number" then
    core.fail("wrong-type", ("%s: capacity_factor must be a number, \"all\" or \"dropless\", not %s"):format(who,
      check.value_text(value)))
  end
  local factor = (value or 1.25) + 0.0
  if not (factor > -1e300 and factor < 1e300) then
    core.fail("out-of-range", ("%s: capacity_factor is not finite"):format(who),
      "a number above 0, or \"all\" or \"dropless\": no token is dropped")
  end
  if factor <= 0 then
    core.fail("out-of-range", ("%s: capacity_factor = %s must be positive"):format(who, factor),
      "1.0 is enough if all experts get the same number of tokens")
  end
  return factor
end

-- Returns a text that says what is wrong with the groups of experts, or nil if nothing is.
local function fault_of_groups(c)
  local each = c.experts // c.groups
  if c.groups > 64 or c.experts % c.groups ~= 0 then
    return ("groups = %d must divide experts = %d, and be at most 64"):format(c.groups, c.experts)
  end
  if c.top_groups > c.groups then return ("top_groups = %d is more than groups = %d"):format(c.top_groups, c.groups) end
  if each * c.top_groups < c.top_k then
    return ("top_k = %d is more than the experts of the best groups: %d x %d"):format(c.top_k, c.top_groups, each)
  end
  if c.sigmoid and c.groups > 1 and each < 2 then
    return ("groups = %d with sigmoid = true: each group needs two experts or more"):format(c.groups)
  end
end

-- Reads the options of groups of experts. With groups, a token chooses only experts of the best
-- groups.
local function read_groups(who, options, c)
  c.groups = check.count(who, "groups", options.groups, 1)
  c.top_groups = check.count(who, "top_groups", options.top_groups, c.groups)
  local fault = fault_of_groups(c)
  if fault then core.fail("out-of-range", who .. ": " .. fault, "groups = 1: a token chooses from all experts") end
end

local function read(who, options)
  local c = { dim = check.count(who, "dim", options.dim), hidden = check.count(who, "hidden", options.hidden),
    experts = check.count(who, "experts", options.experts), top_k = check.count(who, "top_k", options.top_k, 2) }
  if c.experts > core.most_experts then
    core.fail("out-of-range", ("%s: experts = %d is more than %d"):format(who, c.experts, core.most_experts))
  end
  if c.top_k > c.experts then
    core.fail("out-of-range", ("%s: top_k = %d is not possible with %d experts"):format(who, c.top_k, c.experts),
      ("top_k may be 1 to %d"):format(c.experts))
  end
  c.factor = read_factor(who, options.capacity_factor)
  c.aux = check.number(who, "aux_loss", options.aux_loss, 0.01)
  if c.aux < 0 then core.fail("out-of-range", who .. ": aux_loss must not be negative", "0 leaves it out") end
  c.rate = check.number(who, "balance_rate", options.balance_rate, 0)
  if c.rate < 0 then core.fail("out-of-range", who .. ": balance_rate must not be negative", "0 leaves it out") end
  if c.rate > 0 and not check.flag(who, "sigmoid", options.sigmoid, false) then
    core.fail("out-of-range", who .. ": balance_rate works only with sigmoid = true", "set sigmoid = true")
  end
  c.z_loss = check.number(who, "z_loss", options.z_loss, 0)
  if c.z_loss < 0 then core.fail("out-of-range", who .. ": z_loss must not be negative", "0 leaves it out") end
  c.gated = check.flag(who, "gated", options.gated, true)
  c.normalise = check.flag(who, "normalise", options.normalise, true) and 1 or 0
  c.bias = check.flag(who, "bias", options.bias, false)
  c.limit = options.limit and check.number(who, "limit", options.limit)
  if c.limit and (c.limit <= 0 or not c.gated) then
    core.fail("out-of-range", who .. ": limit must be positive, and the experts must be gated", "limit = 7.0")
  end
  c.scaling = check.number(who, "scaling", options.scaling, 1.0)
  c.sigmoid = check.flag(who, "sigmoid", options.sigmoid, false)
  if c.sigmoid and c.aux > 0 then
    core.fail("out-of-range", who .. ": aux_loss does not work with sigmoid = true",
      "set aux_loss = 0; the default is 0.01")
  end
  read_groups(who, options, c)
  return c
end

-- Adds the balance losses `own` of a layer to the sum over layers, one number for each sample [b].
local function add_balance(own)
  local sum = module.balance
  module.balance = sum and op("add", nil, tensors[sum], tensors[own]) or own
end

-- Returns nn.moe, which maps x [b,s,dim] to [b,s,dim]. nn: the library, for its linear and
-- activations. standard: the default initial values. An expert is a SwiGLU or, if `gated` is false,
-- two products with GELU between them.
function experts.moe(nn, standard)
  return core.wrap(function(options)
    local who = "nn.moe"
    if type(options) ~= "table" then
      core.fail("wrong-type", who .. " needs a table, not " .. check.kind_of(options),
        "nn.moe { dim = 512, hidden = 1024, experts = 8, top_k = 2 }")
    end
    check.options(who, options, known[who])
    local c = read(who, options)
    local init = check.init(who, options.init, standard)
    local out_init = check.init(who, options.out_init, options.init or standard)
    local zeros = c.bias and check.init(who, nn.zeros) or nil
    local fields = {
      router = nn.linear(c.dim, c.experts, { init = options.init, bias = c.bias }),
      w1 = experts.linear(who, c.experts, c.dim, c.hidden, init, zeros),
      w3 = c.gated and experts.linear(who, c.experts, c.dim, c.hidden, init, zeros) or nil,
      w2 = experts.linear(who, c.experts, c.hidden, c.dim, out_init, zeros),
    }
    local info = { params = {} }
    local bias = c.rate > 0 and param(info, "balance", { c.experts }, { init = check.init(who, nn.zeros) })
    return new_module("moe", function(m, x)
      local id = check.tensor(who, "the input", x, 3)
      local sizes = { top_k = c.top_k, experts = c.experts, capacity = capacity_of(c, x.shape[2]) }
      local logits = tensors[m.router(x)]
      if c.groups > 1 then sizes.expert_groups, sizes.top_groups, sizes.sigmoid = c.groups, c.top_groups, c.sigmoid and 1 or 0 end
      local ids
      if bias then
        sizes.scale, sizes.sigmoid = c.rate, c.groups > 1 and 1 or nil
        ids = tensors[op("topk_biased", sizes, logits, use(bias))]
        sizes.scale = nil
      else
        ids = tensors[op("topk", sizes, logits)]
      end
      local weights = tensors[op(c.sigmoid and "route_sigmoid" or "route", { normalise = c.normalise }, logits, ids)]
      if c.scaling ~= 1 then weights = tensors[op("scale", { scale = c.scaling }, weights)] end
      if c.aux > 0 then add_balance(op("balance", { scale = c.aux }, logits, ids)) end
      if c.z_loss > 0 then add_balance(op("router_z", { scale = c.z_loss }, logits)) end
      local slots = tensors[op("slots", sizes, ids)]
      local counts = c.factor == "dropless" and tensors[op("counts", sizes, slots)]
      local rows = counts and op("dispatch_uneven", sizes, id, slots, counts) or op("dispatch", sizes, id, slots)
      local function product(linear, of) return linear(of, counts, sizes) end
      local y
      if c.limit then
        y = op("clamp_gate", { scale = c.limit }, tensors[product(m.w1, rows)], tensors[product(m.w3, rows)])
      else
        y = c.gated and nn.silu(product(m.w1, rows)) * product(m.w3, rows) or nn.gelu(product(m.w1, rows))
      end
      y = tensors[product(m.w2, y)]
      return counts and op("combine_uneven", nil, slots, weights, y, counts) or op("combine", nil, slots, weights, y)
    end, fields, info)
  end)
end

return experts
