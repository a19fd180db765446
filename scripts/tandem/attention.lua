-- Attention. Query heads are grouped by the KV head that they read: q is [b,s,g,r,e], and k and v
-- are [b,s,g,e], with samples b, tokens s, KV heads g, query heads for each KV head r, and features
-- of a head e. nn.attention also has windows, soft caps, sinks, keys of another sequence, and T5's
-- table of distances. nn.latent_attention makes keys and values from one small projection
-- (DeepSeek).
local _, core = ...
local check = require "tandem.check"
local module = require "tandem.module"
local known = require("tandem.nn_reference").known
local tensors = check.tensors
local op, param, use, new_module = module.op, module.param, module.use, module.new_module
local attention = {}
local distances = {} -- [id of a distance table]: the distance in tokens at which its last bucket begins

-- Reads the option qk_norm. true or { eps = 1e-6 } means an RMSNorm of each query head and each key
-- head before RoPE.
local function head_norms(nn, who, fields, want, size)
  if not want then return end
  if type(want) ~= "boolean" then check.options(who .. " qk_norm", want, { eps = true }) end
  local how = { eps = type(want) == "table" and want.eps or 1e-6 }
  fields.q_norm, fields.k_norm = nn.rmsnorm(size, how), nn.rmsnorm(size, how)
end

local function options_table(who, options, example)
  if type(options) ~= "table" then
    core.fail("wrong-type", who .. " needs a table, not " .. check.kind_of(options), example)
  end
  return check.options(who, options, known[who])
end

-- Checks the options window and cap, and sets them as attributes in `how`. Returns true if
-- attention has neither.
local function read_kind(who, options, how)
  how.window = options.window and check.count(who, "window", options.window) or 0
  how.cap = check.number(who, "cap", options.cap, 0.0)
  if how.cap < 0 then core.fail("out-of-range", who .. ": cap must be positive", "leave out cap") end
  if how.window > 0 and how.causal == 0 then
    core.fail("out-of-range", who .. ": window works only with causal = true", "set causal = true, or leave out window")
  end
  local plain = how.window == 0 and how.cap == 0
  if how.drop > 0 and not plain then
    core.fail("out-of-range", who .. ": dropout does not work with window, cap or sinks", "leave out dropout")
  end
  return plain
end

-- Reads the options of a call: `memory`, the sequence from which keys and values are made, and
-- `table`, the output of nn.distance_table. Returns both; nil for one that is not given.
local function read_call(who, call, how)
  if call == nil then return nil, nil end
  if tensors[call] then call = { memory = call } end
  check.options(who .. " call", call, { memory = true, table = true })
  if call.memory and how.causal == 1 then
    core.fail("out-of-range", who .. ": attention to another sequence cannot be causal", "set causal = false")
  end
  return call.memory, call.table
end

local function attend(who, how, sinks, distance_table, q, k, v)
  q, k, v = tensors[q], tensors[k], tensors[v]
  if sinks and distance_table then
    core.fail("out-of-range", who .. ": sinks do not work with a table of distances", "leave out one of them")
  end
  if sinks then return op("attention_sink", how, q, k, v, use(sinks)) end
  if not distance_table then return op(how.kind, how, q, k, v) end
  local id = check.tensor(who, "the table", distance_table, 3)
  if not distances[id] then
    core.fail("wrong-type", who .. ": the table must come from nn.distance_table", "m.attention(x, { table = m.distances() })")
  end
  local own = { distance = distances[id] }
  for key, value in pairs(how) do own[key] = value end
  if how.drop > 0 then core.fail("out-of-range", who .. ": dropout does not work with a table of distances", "leave out dropout") end
  return op("attention_table", own, q, k, v, id)
end

local function refuse_heads(who, heads, groups)
  local below = heads // groups * groups
  core.fail("divides-heads", ("%s: heads = %d must be a multiple of kv_heads = %d"):format(who, heads, groups),
    ("heads may be %s%d"):format(below > 0 and below .. " or " or "", below + groups))
end

function attention.add(nn, own)
  local linear, rope, rope_attrs, standard = own.linear, own.rope, own.rope_attrs, own.standard

  nn.attention = core.wrap(function(options)
    local who = "nn.attention"
    options_table(who, options, "nn.attention { dim = 512, heads = 8 }")
    local dim, heads = check.count(who, "dim", options.dim), check.count(who, "heads", options.heads)
    local groups = check.count(who, "kv_heads", options.kv_heads, heads)
    if heads % groups ~= 0 then refuse_heads(who, heads, groups) end
    if options.head_dim == nil and dim % heads ~= 0 then
      core.fail("divides-heads", ("%s: dim = %d is not a multiple of heads = %d"):format(who, dim, heads),
        "set head_dim, or use a number of heads that divides dim")
    end
    local size = check.count(who, "head_dim", options.head_dim, dim // heads)
    local causal = check.flag(who, "causal", options.causal, true)
    local how = { bias = check.flag(who, "bias", options.bias, false),
      init = check.init(who, options.init, standard) }
    local out = { bias = check.flag(who, "out_bias", options.out_bias, how.bias),
      init = check.init(who, options.out_init, options.init or standard) }
    how.spectral, out.spectral = own.check_norm(who, options, how.init), own.check_norm(who, options, out.init)
    local turn = options.rope_theta and rope_attrs(who, options.rope_theta, options.rope_scaling, options.rope_image)
    if turn and size % 2 ~= 0 then
      core.fail("out-of-range", ("%s: head_dim = %d must be even, because rotary positions rotate pairs of numbers"):format(who, size))
    end
    if turn then turn.rope_dims = own.rope_dims(who, options.rope_dims, size) end
    local scale = check.number(who, "scale", options.scale, 1 / math.sqrt(size))
    local attrs = { scale = scale, causal = causal and 1 or 0, drop = own.check_drop(who, options.dropout) }
    local with_sinks = check.flag(who, "sinks", options.sinks, false)
    attrs.kind = read_kind(who, options, attrs) and "attention" or "attention_wide"
    if with_sinks and attrs.drop > 0 then
      core.fail("out-of-range", who .. ": dropout does not work with sinks", "leave out dropout")
    end
    local fields = { wo = linear(who, "linear_o", { groups, heads // groups, size }, { dim }, 3, out) }
    local fused, repeats = check.flag(who, "fused", options.fused, false), heads // groups
    if fused then
      how.each = { repeats, 1, 1 }
      fields.wqkv = linear(who, "linear_heads", { dim }, { groups, repeats + 2, size }, 1, how)
    else
      fields.wq = linear(who, "linear_q", { dim }, { groups, heads // groups, size }, 1, how)
      fields.wk = linear(who, "linear_kv", { dim }, { groups, size }, 1, how)
      fields.wv = linear(who, "linear_kv", { dim }, { groups, size }, 1, how)
    end
    if with_sinks then fields.sinks = attention.sinks(groups, repeats, check.init(who, nil, standard)) end
    head_norms(nn, who, fields, options.qk_norm, size)
    local normed = rawget(fields, "q_norm") ~= nil
    return new_module("attention", function(m, x, call)
      own.check_last(who, x, dim)
      local memory, distance_table = read_call(who, call, attrs)
      local q, k, v
      if fused then
        if memory then core.fail("out-of-range", who .. ": fused does not work with attention to another sequence", "leave out fused") end
        local all = tensors[m.wqkv(x)]
        q = op("part_heads", { first = 0, count = repeats }, all)
        k = op("part_head", { first = repeats, count = 1 }, all)
        v = op("part_head", { first = repeats + 1, count = 1 }, all)
      else
        local of = memory or x
        q, k, v = m.wq(x), m.wk(of), m.wv(of)
      end
      if normed then q, k = m.q_norm(q), m.k_norm(k) end
      if turn then q, k = rope(who, q, turn), rope(who, k, turn) end
      return m.wo(attend(who, attrs, with_sinks and m.sinks(), distance_table, q, k, v))
    end, fields)
  end)

  -- T5's table (arXiv 1910.10683): one learned number for each head and each bucket of distances.
  -- Calling the module returns it: [buckets, kv_heads, heads / kv_heads].
  nn.distance_table = core.wrap(function(options)
    local who = "nn.distance_table"
    options_table(who, options, "nn.distance_table { heads = 8 }")
    local heads = check.count(who, "heads", options.heads)
    local groups = check.count(who, "kv_heads", options.kv_heads, heads)
    if heads % groups ~= 0 then refuse_heads(who, heads, groups) end
    local buckets = check.count(who, "buckets", options.buckets, 32)
    local distance = check.count(who, "distance", options.distance, 128)
    if buckets < 4 or buckets > 64 or buckets % 4 ~= 0 or distance <= buckets then
      core.fail("out-of-range", ("%s: %d buckets up to distance %d"):format(who, buckets, distance),
        "buckets: 4 to 64, a multiple of 4; distance: more than buckets")
    end
    local info = { params = {}, tp_styles = { column = true } }
    local weight = param(info, "weight", { buckets, groups, heads // groups },
      { init = check.init(who, options.init, standard), column = 1 })
    return new_module("distance_table", function()
      local id = use(weight)
      distances[id] = distance
      return module.tensor(id)
    end, {}, info)
  end)

  nn.latent_attention = core.wrap(function(options)
    local who = "nn.latent_attention"
    options_table(who, options, "nn.latent_attention { dim = 512, heads = 8, kv_rank = 64, nope_dim = 32, rope_dim = 16 }")
    local dim, heads = check.count(who, "dim", options.dim), check.count(who, "heads", options.heads)
    local kv_rank = check.count(who, "kv_rank", options.kv_rank)
    local nope, turned = check.count(who, "nope_dim", options.nope_dim), check.count(who, "rope_dim", options.rope_dim)
    local value = check.count(who, "value_dim", options.value_dim, nope)
    local q_rank = options.q_rank and check.count(who, "q_rank", options.q_rank)
    local eps = own.check_eps(who, options.eps)
    if turned % 2 ~= 0 then
      core.fail("out-of-range", ("%s: rope_dim = %d must be even, because rotary positions rotate pairs of numbers"):format(who, turned))
    end
    local turn, sharper = rope_attrs(who, options.rope_theta, options.rope_scaling)
    turn.rope_dims = turned
    local turn_key = {}
    for key, attr in pairs(turn) do turn_key[key] = attr end
    turn_key.rope_dims = 0
    local attrs = { scale = check.number(who, "scale", options.scale, sharper / math.sqrt(nope + turned)),
      causal = check.flag(who, "causal", options.causal, true) and 1 or 0, drop = 0, kind = "attention_wide" }
    local how = { bias = false, init = check.init(who, options.init, standard) }
    local out = { bias = false, init = check.init(who, options.out_init, options.init or standard) }
    local of_query = { heads, 1, nope + turned }
    local fields = {
      wkv_a = nn.linear(dim, kv_rank, { init = options.init }), kv_norm = nn.rmsnorm(kv_rank, { eps = eps }),
      wk_rope = nn.linear(dim, turned, { init = options.init }),
      wk_b = linear(who, "linear_kv", { kv_rank }, { heads, nope }, 1, how),
      wv_b = linear(who, "linear_kv", { kv_rank }, { heads, value }, 1, how),
      wo = linear(who, "linear_o", { heads, 1, value }, { dim }, 3, out),
    }
    if q_rank then
      fields.wq_a, fields.q_norm = nn.linear(dim, q_rank, { init = options.init }), nn.rmsnorm(q_rank, { eps = eps })
    end
    fields.wq = linear(who, "linear_q", { q_rank or dim }, of_query, 1, how)
    return new_module("attention", function(m, x)
      own.check_last(who, x, dim)
      local small = m.kv_norm(m.wkv_a(x))
      local q = rope(who, m.wq(q_rank and m.q_norm(m.wq_a(x)) or x), turn)
      local shared = rope(who, m.wk_rope(x), turn_key)
      local k = op("join_heads", nil, tensors[shared], tensors[m.wk_b(small)])
      return m.wo(attend(who, attrs, nil, nil, q, k, m.wv_b(small)))
    end, fields)
  end)
end

-- Sinks: one more learned score for each head, [kv_heads, heads / kv_heads]. It takes part in the
-- softmax and has no value. Calling the module returns its parameter.
function attention.sinks(groups, repeats, init)
  local info = { params = {}, tp_styles = { column = true } }
  local weight = param(info, "weight", { groups, repeats }, { init = init, column = 0 })
  return new_module("sinks", function() return weight end, {}, info)
end

return attention
