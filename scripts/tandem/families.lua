-- Functions for scripts that describe a family of models. They return the config of a size with the
-- plan's changes, check its numbers, and shrink it to a smaller model of the same structure.
local _, core = ...
local check = require "tandem.check"
local words = check.words
local families = {}

-- [config]: the name of the family that made the config
local made = setmetatable({}, { __mode = "k" })

-- Returns the name of the family that made this model's config, such as "phi". Returns nil if the
-- model is the user's own, even if it has the name of a family.
function families.of(model)
  local config = type(model) == "table" and rawget(model, "config")
  return type(config) == "table" and made[config] or nil
end

-- Returns the defaults of a part of a model, with the plan's changes. If the default of a key is
-- false, its value may have any type.
local function merged(family, part, given, defaults, location)
  local who, config = ("models.%s: %s"):format(family, part), {}
  if type(given) ~= "table" then
    core.fail("wrong-type", ("%s must be a table, not %s"):format(who, check.value_text(given)), part .. " = { dim = 32 }", location)
  end
  for key, value in pairs(defaults) do config[key] = value end
  for key, value in pairs(given) do
    local default = defaults[key]
    if default == nil then
      core.fail("unknown-key", ("unknown key '%s' in %s of models.%s"):format(tostring(key), part, family),
        core.near(tostring(key), words(defaults)) or "keys: " .. table.concat(words(defaults), ", "), location)
    elseif default and type(value) ~= type(default) then
      core.fail("wrong-type", ("%s.%s must be a %s, not %s"):format(who, key, type(default), check.value_text(value)), nil, location)
    end
    config[key] = value
  end
  return config
end

function families.add(nn)
  -- Returns the config of one size of a family, with the plan's changes. what: "3.1-8b" or { size = "3.1-8b", layers =
  -- 4 }. parts: keys whose values are tables in which the plan may change single entries. Any other table is replaced
  -- as a whole. Mistakes are reported at the plan's line.
  nn.family = core.wrap(function(family, what, sizes, defaults, parts)
    local location = core.location(true)
    local options = type(what) == "table" and what or { size = what }
    local size = options.size
    if size == nil then
      local all = words(sizes)
      core.fail("unknown-word", ("models.%s needs a size"):format(family), ("name a size, as in model=%s:%s; sizes: %s"):format(
        family, all[1], table.concat(all, ", ")), location)
    end
    if type(size) ~= "string" or not sizes[size] then
      core.fail("unknown-word", ("models.%s has no size '%s'"):format(family, tostring(size)),
        core.near(tostring(size), words(sizes)) or "sizes: " .. table.concat(words(sizes), ", "), location)
    end
    local config = {}
    for key, value in pairs(defaults) do config[key] = value end
    for key, value in pairs(sizes[size]) do config[key] = value end
    for key, value in pairs(options) do
      if key ~= "size" and config[key] == nil then
        core.fail("unknown-key", ("unknown key '%s' in models.%s"):format(tostring(key), family),
          core.near(tostring(key), words(config)) or "keys: " .. table.concat(words(config), ", "), location)
      end
      if parts and parts[key] then value = merged(family, key, value, config[key], location) end
      if key ~= "size" then config[key] = value end
    end
    made[config] = family
    return family .. "-" .. size, config
  end)

  -- Returns the numbers of query heads and KV heads of a shrunk model. If a KV head of the original
  -- belongs to one rank of tp, or several ranks of tp share it, the same holds for the shrunk
  -- model. Each rank has one or two query heads.
  nn.small_heads = core.wrap(function(heads, kv_heads, mesh)
    local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end
    local tp, outer = mesh.tp, gcd(kv_heads, mesh.full_tp)
    local sharing, repeats = mesh.full_tp // outer, heads // kv_heads
    if repeats % sharing ~= 0 then
      core.fail("divides-heads", ("heads = %d with kv_heads = %d cannot be split over tp = %d"):format(heads,
        kv_heads, mesh.full_tp), "`tandem check` names the sizes of tp that work")
    end
    local groups = sharing == 1 and tp or math.min(outer, tp > 2 and tp % 2 == 0 and 2 or 1)
    local parts = sharing == 1 and mesh.cp or 1 -- with mode = "all_to_all", cp also divides the heads
    return tp * math.min(repeats // sharing, 2) * parts, groups * parts
  end)

  -- Returns a copy of a config in which some values are changed.
  nn.with = core.wrap(function(config, changes)
    local copy = {}
    for key, value in pairs(config) do copy[key] = value end
    for key, value in pairs(changes) do copy[key] = value end
    made[copy] = made[config]
    return copy
  end)

  -- For a function shrink(config, mesh): returns the smallest decoder of the same structure. Sizes
  -- are odd, except those that must divide evenly over ranks.
  nn.small = core.wrap(function(c, mesh, changes)
    local small = nn.with(c, { layers = math.min(c.layers, 2 * mesh.stages), dim = 13 * mesh.multiple, vocab = 29,
      head_dim = 4, hidden = mesh.tp * 7 * mesh.block, seq = 5 * mesh.block * mesh.tp * mesh.cp * (mesh.cp > 1 and 2 or 1) })
    if not (changes and changes.heads) then
      local heads, kv_heads = nn.small_heads(c.heads, c.kv_heads or c.heads, mesh)
      small.heads, small.kv_heads = heads, c.kv_heads and kv_heads
    end
    if type(c.rope_scaling) == "table" and c.rope_scaling.kind == "longrope" then
      -- For LongRoPE, the small model has two pairs, so two factors. The context is shorter than
      -- the sequences, so that the long factors are used.
      small.rope_scaling = { kind = "longrope", context = 2, length = small.seq, short = { 1.1, 2.0 }, long = { 1.5, 3.0 } }
    end
    if c.experts then -- two experts for each rank of ep, and at least four, so that a token has a choice
      small.experts = 2 * math.max(mesh.ep, 2)
      small.top_k = math.min(c.top_k, 2)
    end
    return nn.with(small, changes or {})
  end)

  -- For the build function of a family: checks that a number of its config is an integer between
  -- two bounds and a multiple of `multiple`, and returns it.
  nn.within = core.wrap(function(family, key, value, least, most, multiple)
    local who = "models." .. family
    value = check.within(who, key, value, least, most)
    if multiple and value % multiple ~= 0 then
      local below = value // multiple * multiple
      core.fail("out-of-range", ("%s: %s = %d must be a multiple of %d"):format(who, key, value, multiple),
        below < least and ("the next one is %d"):format(below + multiple)
          or ("the nearest are %d and %d"):format(below, below + multiple))
    end
    return value
  end)
end

return families
