-- State-space layers: the mixer of Mamba-2 (arXiv 2405.21060). The heads of a group share B and C,
-- as query heads share keys and values. With samples b, tokens s, groups g, heads of a group r,
-- features of a head e and states q: x and z are [b,s,g,r,e], B and C are [b,s,g,q], and the step
-- sizes are [b,s,g,r].
local _, core = ...
local check = require "tandem.check"
local module = require "tandem.module"
local known = require("tandem.nn_reference").known
local tensors, inits = check.tensors, check.inits
local op, param, use, new_module = module.op, module.param, module.use, module.new_module
local state_space = {}

-- Returns a module that convolves each feature over the last `window` tokens of the sequence, and
-- then applies silu. dims: the dimensions of the features.
local function convolution(name, dims, window, uniform)
  local info = { params = {}, tp_styles = { column = true } }
  local taps = {}
  for i, n in ipairs(dims) do taps[i] = n end
  taps[#taps + 1] = window
  local bound = 1 / math.sqrt(window)
  local weight = param(info, "weight", taps, { init = inits[uniform(-bound, bound)], column = 0 })
  local bias = param(info, "bias", dims, { init = inits[uniform(-bound, bound)], column = 0 })
  return new_module("conv_tokens", function(_, x) return op(name, nil, tensors[x], use(weight), use(bias)) end, {}, info)
end

function state_space.add(nn, own)
  local linear, standard = own.linear, own.standard

  -- The scan of a state-space layer. At the start, its steps are between about 0.001 and 0.1, and
  -- its decay rates exp(a_log) are between 1 and 16.
  local function scan(groups, repeats, chunk)
    local info, dims = { params = {}, tp_styles = { column = true } }, { groups, repeats }
    local bias = param(info, "dt_bias", dims, { init = inits[nn.uniform(math.log(0.001), math.log(0.1))], column = 0 })
    local rate = param(info, "a_log", dims, { init = inits[nn.uniform(0.0, math.log(16.0))], column = 0 })
    local skip = param(info, "d", dims, { init = inits[nn.ones], column = 0 })
    return new_module("state_scan", function(_, x, dt, b, c)
      local step = op("step_size", nil, tensors[dt], use(bias))
      return op("state_scan", { chunk = chunk }, tensors[x], tensors[step], use(rate), tensors[b], tensors[c], use(skip))
    end, {}, info)
  end

  local function gated_norm(groups, repeats, head_dim, eps)
    local info = { params = {}, tp_styles = { column = true } }
    local weight = param(info, "weight", { groups, repeats, head_dim }, { init = inits[nn.ones], column = 0 })
    return new_module("gated_norm", function(_, y, z)
      return op("gated_norm", { eps = eps }, tensors[y], tensors[z], use(weight))
    end, {}, info)
  end

  nn.mamba2 = core.wrap(function(options)
    local who = "nn.mamba2"
    if type(options) ~= "table" then
      core.fail("wrong-type", who .. " needs a table, not " .. check.kind_of(options), "nn.mamba2 { dim = 512, heads = 16 }")
    end
    check.options(who, options, known[who])
    local dim, heads = check.count(who, "dim", options.dim), check.count(who, "heads", options.heads)
    local head_dim, groups = check.count(who, "head_dim", options.head_dim, 64), check.count(who, "groups", options.groups, 1)
    local state, window = check.count(who, "state", options.state, 128), check.count(who, "window", options.window, 4)
    local chunk, eps = check.count(who, "chunk", options.chunk, 256), own.check_eps(who, options.eps)
    if heads % groups ~= 0 then
      core.fail("divides-heads", ("%s: heads = %d must be a multiple of groups = %d"):format(who, heads, groups))
    end
    if head_dim * state > 32768 then
      core.fail("out-of-range", ("%s: head_dim * state = %d * %d is too large"):format(who, head_dim, state),
        "at most 32768")
    end
    local repeats = heads // groups
    local how = { bias = check.flag(who, "bias", options.bias, false), init = check.init(who, options.init, standard) }
    local out = { bias = how.bias, init = check.init(who, options.out_init, options.init or standard) }
    local features, shared = { groups, repeats, head_dim }, { groups, state }
    return module.module {
      wz = linear(who, "linear_q", { dim }, features, 1, how), wx = linear(who, "linear_q", { dim }, features, 1, how),
      wb = linear(who, "linear_kv", { dim }, shared, 1, how), wc = linear(who, "linear_kv", { dim }, shared, 1, how),
      wdt = linear(who, "linear_kv", { dim }, { groups, repeats }, 1, how),
      conv_x = convolution("conv_heads", features, window, nn.uniform),
      conv_b = convolution("conv_groups", shared, window, nn.uniform),
      conv_c = convolution("conv_groups", shared, window, nn.uniform),
      scan = scan(groups, repeats, chunk), norm = gated_norm(groups, repeats, head_dim, eps),
      wo = linear(who, "linear_o", features, { dim }, 3, out),
      tp_col = { "wz", "wx", "wb", "wc", "wdt", "conv_x", "conv_b", "conv_c", "scan", "norm" }, tp_row = "wo",
      forward = function(m, x)
        own.check_last(who, x, dim)
        local y = m.scan(m.conv_x(m.wx(x)), m.wdt(x), m.conv_b(m.wb(x)), m.conv_c(m.wc(x)))
        return m.wo(m.norm(y, m.wz(x)))
      end,
    }
  end)

  -- Returns the pattern of a hybrid model's layers: one letter for each of config.layers layers.
  -- letters: each letter and its meaning. Errors name the plan's line.
  nn.layer_pattern = core.wrap(function(family, config, letters)
    local who, location, pattern, meanings = "models." .. family, core.location(true), config.pattern, {}
    for letter, meaning in pairs(letters) do meanings[#meanings + 1] = ("%s (%s)"):format(letter, meaning) end
    table.sort(meanings)
    local hint = "letters: " .. table.concat(meanings, ", ")
    if type(pattern) ~= "string" then
      core.fail("wrong-type", ("%s: pattern must be a text with a letter for each layer, not %s"):format(who,
        check.value_text(pattern)), hint, location)
    end
    if pattern == "" then core.fail("unknown-word", who .. ": pattern is empty", hint, location) end
    for letter in pattern:gmatch "." do
      if not letters[letter] then
        core.fail("unknown-word", ("%s: pattern = '%s' has the letter '%s'"):format(who, pattern:sub(1, 40), letter), hint,
          location)
      end
    end
    local layers = check.count(who, "layers", config.layers or #pattern, nil, location)
    if layers > core.most then
      core.fail("out-of-range", ("%s: layers = %d is more than a model may have"):format(who, layers),
        ("at most %d"):format(core.most), location)
    end
    return pattern:rep(1 + layers // #pattern):sub(1, layers)
  end)

  -- Returns the numbers of heads and groups of a shrunk mixer. One group stays one group. tp and cp
  -- split groups or heads in the same way as in the original model.
  nn.small_scan_heads = core.wrap(function(heads, groups, mesh)
    if groups == 1 then return 2 * mesh.tp * mesh.cp, 1 end
    if mesh.tp == 1 and groups % mesh.cp == 0 then return 4 * mesh.cp, 2 * mesh.cp end
    if mesh.tp == 1 then
      local own = mesh.cp % 2 == 0 and groups % 2 == 0 and 2 or 1 -- the groups, which the ranks of cp share
      return 2 * own * mesh.cp, own
    end
    if groups % mesh.full_tp ~= 0 then return nn.small_heads(heads, groups, mesh) end
    return 2 * mesh.tp * mesh.cp, mesh.tp
  end)
end

return state_space
