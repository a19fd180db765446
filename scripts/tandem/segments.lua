-- Fused projections: one weight makes several segments of features, one after the other. Equal
-- segments form a separate dimension. Unequal segments are stored by groups. The number of groups
-- is the greatest common divisor of the sizes, and each group holds the same part of every segment.
-- If tp gives each rank some of the groups, each rank gets an equal part of every segment.
local _, core = ...
local check = require "tandem.check"
local module = require "tandem.module"
local segments = {}

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end

local function read_list(who, list, n_out)
  local count, sum, equal, common = 0, 0, true, 0
  for key in pairs(list) do
    count = count + 1
    if math.type(key) ~= "integer" or key < 1 or key > rawlen(list) then
      core.fail("unknown-key", ("unknown key '%s' in %s segments"):format(tostring(key), who),
        "segments is a list of sizes: { 4096, 1024, 1024 }")
    end
  end
  if count == 0 or count > 64 then
    core.fail("fused-segments", ("%s: a projection has 1 to 64 segments, not %d"):format(who, count))
  end
  for i = 1, count do
    local n = check.count(who, "segment " .. i, list[i])
    sum, equal, common = sum + n, equal and n == list[1], gcd(n, common)
  end
  if sum ~= n_out then
    core.fail("fused-segments", ("%s: segments add up to %d, but out_features is %d"):format(who, sum, n_out),
      ("out_features = %d"):format(sum))
  end
  return count, not equal and common or nil
end

-- Reads the option segments of a linear with n_out features. For equal segments, 2 or { n, n },
-- returns their number. For unequal segments, { a, b, c }, returns the number of groups. Then it
-- also sets how.each, the number of features of each segment in a group, and how.segments, the
-- sizes of segments.
function segments.read(who, given, n_out, how)
  if type(given) == "table" and not check.modules[given] then
    local count, groups = read_list(who, given, n_out)
    if not groups then return count end
    how.each, how.segments = {}, {}
    for i = 1, count do how.each[i], how.segments[i] = given[i] // groups, given[i] end
    return groups
  end
  local n = check.count(who, "segments", given)
  if n_out % n ~= 0 then
    core.fail("fused-segments", ("%s: out_features = %d cannot be divided into %d equal segments"):format(who, n_out, n),
      "segments = { a, b, c } names sizes that differ")
  end
  return n
end

-- Describes a parameter that is stored by groups in dimension `dim`: how many features of a group
-- belong to each segment. Returns nil if the parameter has no groups.
function segments.order(dim, each)
  return each and { dim = dim, table.unpack(each) }
end

-- Takes segment i (from 1) of the output of a linear with segments: [b,s,segments,n] -> [b,s,n].
segments.take = core.wrap(function(x, i)
  local who = "nn.segment"
  local id = check.tensor(who, "the input", x)
  local unequal = check.segments[id]
  if #x.shape ~= 4 then
    core.fail("fused-segments", ("%s: a tensor of shape %s has no segments"):format(who,
      check.shape_text(x.shape)),
      "name the segments where the tensor is made: nn.linear(n_in, n_out, { segments = 2 })")
  end
  local n = unequal and #unequal or x.shape[3]
  i = check.count(who, "which", i)
  if i > n then core.fail("out-of-range", ("%s: there is no segment %d, only segments 1 to %d"):format(who, i, n)) end
  if not unequal then return module.op("segment", { segment = i - 1 }, id) end
  local first, groups = 0, x.shape[3]
  for k = 1, i - 1 do first = first + unequal[k] // groups end
  return module.op("part", { first = first, count = unequal[i] // groups }, id)
end)

return segments
