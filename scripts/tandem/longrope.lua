-- LongRoPE (arXiv 2402.13753) divides the frequency of each pair of elements by a separate factor.
-- Sequences up to the original context use the short factors, and longer sequences use the long
-- factors. In both cases, queries and keys are multiplied by one number, the attention factor.
local _, core = ...
local check = require "tandem.check"
local longrope = {}

local keys = { kind = true, short = true, long = true, context = true, length = true, attention_factor = true }
local most_pairs, least_factor, most_factor = core.most_rope_pairs, core.least_rope_pair, core.most_rope_pair

local function read_factor(who, what, value)
  local factor = check.number(who, what, value)
  if not (factor >= least_factor and factor <= most_factor) then
    core.fail("out-of-range", ("%s: %s of LongRoPE is %g"):format(who, what, factor), ("factors are between %g and %d"):format(least_factor, most_factor))
  end
  return factor
end

local function read_factors(who, name, list)
  if type(list) ~= "table" or next(list) == nil then
    core.fail("missing-key", ("%s: LongRoPE needs a list of %s factors"):format(who, name),
      "short = { 1.0, 1.1, ... }, long = { ... }: give one factor for each pair of rotated elements")
  end
  local n = 0
  for key in pairs(list) do
    if math.type(key) ~= "integer" or key < 1 or key > most_pairs then
      core.fail("out-of-range", ("%s: LongRoPE has a %s factor at '%s'"):format(who, name, tostring(key)),
        ("a list of at most %d factors: { 1.0, 1.1, ... }"):format(most_pairs))
    end
    n = math.max(n, key)
  end
  local copy = {}
  for i = 1, n do
    if list[i] == nil then
      core.fail("missing-key", ("%s: LongRoPE has %s factor %d, but not %s factor %d"):format(who, name, n, name, i),
        "give one factor for each pair of rotated elements")
    end
    copy[i] = read_factor(who, ("%s factor %d"):format(name, i), list[i])
  end
  return copy
end

-- Reads the options of LongRoPE. Returns a table: the lists `short` and `long` of factors, the
-- original context and the new `length` in tokens, and the attention factor `gain`. By default,
-- gain is sqrt(1 + ln(length / context) / ln(context)).
function longrope.read(who, scaling)
  check.options(who .. " scaling", scaling, keys)
  local own = { short = read_factors(who, "short", scaling.short), long = read_factors(who, "long", scaling.long) }
  if scaling.context == nil or scaling.length == nil then
    core.fail("missing-key", who .. ": LongRoPE needs context (the original length) and length (the new one)",
      "context = 4096, length = 131072: in tokens")
  end
  own.context = check.count(who, "context", scaling.context)
  local length = check.count(who, "length", scaling.length)
  if length < own.context then
    core.fail("out-of-range", ("%s: LongRoPE has length = %d, which is less than its original context = %d"):format(who, length, own.context),
      ("length: at least %d"):format(own.context))
  end
  if length > own.context and own.context == 1 then
    core.fail("out-of-range", who .. ": LongRoPE has an original context of 1 token", "set context to 2 or more")
  end
  local stretched = length > own.context and math.sqrt(1 + math.log(length / own.context) / math.log(own.context)) or 1.0
  own.length = length
  own.gain = scaling.attention_factor == nil and stretched or read_factor(who, "attention_factor", scaling.attention_factor)
  return own
end

-- Returns the op's attributes for queries or keys of this shape, [b, s, ..., d]: `attrs`, with the
-- factors for the sequence's length.
function longrope.attrs(who, attrs, shape)
  local own, size = attrs.by_length, shape[#shape]
  local turned = (attrs.rope_dims or 0) > 0 and attrs.rope_dims or size
  for _, name in ipairs { "short", "long" } do
    if 2 * #own[name] ~= turned then
      core.fail("shape-mismatch", ("%s: LongRoPE has %d %s factors, but rotates %d elements of each head"):format(who, #own[name],
        name, turned), ("give %d factors, one for each pair of elements"):format(turned // 2))
    end
  end
  if shape[2] > own.length then
    core.fail("out-of-range", ("%s: a sequence has %d tokens, but LongRoPE only reaches length = %d"):format(who, shape[2], own.length),
      ("seq may be up to %d"):format(own.length))
  end
  local pairs_of = shape[2] > own.context and own.long or own.short
  return { theta = attrs.theta, rope_dims = attrs.rope_dims, rope_pair = pairs_of, rope_gain = own.gain ~= 1 and own.gain or nil }
end

return longrope
