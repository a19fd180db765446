-- LongRoPE (arxiv.org/abs/2402.13753): every pair of elements has a factor of its own that divides
-- its frequency. Sequences up to the original context use the short factors, longer ones the long
-- factors. Both kinds of sequences are also lengthened by one number, the attention factor.
local _, core = ...
local check = require "tandem.check"
local longrope = {}

local keys = { kind = true, short = true, long = true, context = true, length = true, attention_factor = true }
local most_pairs = 64

local function read_factors(who, name, list)
  if type(list) ~= "table" or #list == 0 then
    core.fail("missing-key", ("%s: LongRoPE needs a list of %s factors"):format(who, name),
      "short = { 1.0, 1.1, ... }, long = { ... }: a number for each pair of elements that turns")
  end
  if #list > most_pairs then
    core.fail("out-of-range", ("%s: LongRoPE has %d %s factors"):format(who, #list, name),
      ("at most %d pairs turn"):format(most_pairs))
  end
  local copy = {}
  for i = 1, #list do
    copy[i] = check.number(who, ("%s factor %d"):format(name, i), list[i])
    if not (copy[i] > 0 and copy[i] < math.huge) then
      core.fail("out-of-range", ("%s: %s factor %d of LongRoPE is %s"):format(who, name, i, copy[i]), "factors are above 0")
    end
  end
  return copy
end

function longrope.read(who, scaling)
  check.options(who .. " scaling", scaling, keys)
  local own = { short = read_factors(who, "short", scaling.short), long = read_factors(who, "long", scaling.long),
    context = check.count(who, "context", scaling.context) }
  local length = check.count(who, "length", scaling.length, own.context)
  if length > own.context and own.context == 1 then
    core.fail("out-of-range", who .. ": LongRoPE with an original context of 1 token", "context: at least 2")
  end
  local stretched = length > own.context and math.sqrt(1 + math.log(length / own.context) / math.log(own.context)) or 1.0
  own.gain = check.number(who, "attention_factor", scaling.attention_factor, stretched)
  return own
end

-- The attributes for a sequence of this shape, [b, s, ..., d].
function longrope.attrs(who, attrs, shape)
  local own, size = attrs.by_length, shape[#shape]
  local turned = (attrs.rope_dims or 0) > 0 and attrs.rope_dims or size
  local long = shape[2] > own.context
  local pairs_of = long and own.long or own.short
  if 2 * #pairs_of ~= turned then
    core.fail("shape-mismatch", ("%s: LongRoPE has %d %s factors, and %d elements of a head turn"):format(who, #pairs_of,
      long and "long" or "short", turned), ("%d factors: one for each pair of elements"):format(turned // 2))
  end
  return { theta = attrs.theta, rope_dims = attrs.rope_dims, rope_pair = pairs_of, rope_gain = own.gain ~= 1 and own.gain or nil }
end

return longrope
