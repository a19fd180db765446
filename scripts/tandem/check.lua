-- Records of the modules, tensors and initial values that scripts hold, and checks of arguments.
-- The error of a check names the function that was called, the expected and the given value, and
-- the line of the call.
local _, core = ...
local check = {
  modules = {},  -- [module]: the module's name, parameters and other facts
  tensors = {},  -- [tensor]: the tensor's id in the graph
  inits = {},    -- [initial value]: its kind and its numbers
  segments = {}, -- [tensor's id]: the sizes of its segments, if these are unequal and stored by groups (segments.lua)
}
local modules, tensors, inits = check.modules, check.tensors, check.inits

function check.words(t)
  local list = {}
  for key in pairs(t) do if type(key) == "string" then list[#list + 1] = key end end
  return list
end

function check.kind_of(value)
  if type(value) ~= "table" then return type(value) end
  if modules[value] then return "module (nn." .. modules[value].class .. ")" end
  return tensors[value] and "tensor" or "table"
end

-- Returns the value itself if it is short, otherwise its type, as text for a message.
function check.value_text(value)
  if math.type(value) == "float" then return ("%.14g"):format(value) end
  if type(value) == "string" and #value <= 40 then return ("the text '%s'"):format(value) end
  return check.kind_of(value)
end

function check.shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- ---- checks of arguments

-- Checks that a value is an integer from `least` to `most`, and returns it. location: the place
-- that an error names; nil: the line of the call.
function check.within(who, what, value, least, most, location)
  if math.type(value) == "float" and math.tointeger(value) then value = math.tointeger(value) end
  if math.type(value) ~= "integer" then
    core.fail("wrong-type", ("%s: %s must be an integer, not %s"):format(who, what, check.value_text(value)), nil,
      location)
  end
  if value < least or value > most then
    core.fail("out-of-range", ("%s: %s = %d must be between %d and %s"):format(who, what, value, least,
      most == 1 << 30 and "2^30" or tostring(most)), nil, location)
  end
  return value
end

-- Checks that a value is an integer from 1 to 2^30, and returns it; `default` replaces nil.
function check.count(who, what, value, default, location)
  if value == nil and default ~= nil then return default end
  return check.within(who, what, value, 1, 1 << 30, location)
end

-- Checks that a value is a finite number, and returns it as a float; `default` replaces nil.
function check.number(who, what, value, default)
  if value == nil then return default end
  if type(value) ~= "number" then
    core.fail("wrong-type", ("%s: %s must be a number, not %s"):format(who, what, check.value_text(value)))
  end
  if not (value > -1e300 and value < 1e300) then
    core.fail("out-of-range", ("%s: %s is not finite"):format(who, what))
  end
  return value + 0.0
end

-- Checks that a value is one of the words, and returns it.
function check.word(who, what, value, words)
  for _, word in ipairs(words) do
    if value == word then return value end
  end
  core.fail("unknown-word", ("%s: %s may not be %s"):format(who, what, check.value_text(value)),
    type(value) == "string" and core.near(value, words) or "one of: " .. table.concat(words, ", "))
end

-- Checks that a list has `n` entries, and returns it. why: the end of the message, which says what
-- the entries are for.
function check.entries(who, what, value, n, why)
  if type(value) ~= "table" or #value ~= n then
    core.fail("wrong-type", ("%s: %s needs %d entries, %s"):format(who, what, n, why))
  end
  return value
end

-- Checks that `options` is nil or a table with no other keys than those of `known`, and returns a table.
function check.options(who, options, known)
  if options == nil then return {} end
  if type(options) ~= "table" or modules[options] or tensors[options] then
    core.fail("wrong-type", ("%s: options must be a table, not %s"):format(who, check.kind_of(options)))
  end
  for key in pairs(options) do
    if not known[key] then
      core.fail("unknown-key", ("unknown key '%s' in %s"):format(tostring(key), who),
        core.near(tostring(key), check.words(known)) or "keys: " .. table.concat(check.words(known), ", "))
    end
  end
  return options
end

function check.flag(who, what, value, default)
  if value == nil then return default end
  if type(value) ~= "boolean" then
    core.fail("wrong-type", ("%s: %s must be true or false, not %s"):format(who, what, check.kind_of(value)))
  end
  return value
end

-- Checks that a value is a tensor, with n_dims dimensions unless n_dims is nil. Returns its id in the graph.
function check.tensor(who, what, value, n_dims)
  if not tensors[value] then
    core.fail("wrong-type", ("%s: %s must be a tensor, not %s"):format(who, what, check.kind_of(value)),
      modules[value] and "call the module to get its output" or nil)
  end
  if n_dims and #value.shape ~= n_dims then
    core.fail("shape-mismatch", ("%s: %s has shape %s, expected %d dimensions"):format(who, what,
      check.shape_text(value.shape), n_dims))
  end
  return tensors[value]
end

-- Checks that a value is a module, and returns the library's record of it.
function check.module(who, what, value)
  if not modules[value] then
    core.fail("wrong-type", ("%s: %s must be a module, not %s"):format(who, what, check.kind_of(value)))
  end
  return modules[value]
end

-- Checks that a value is an initial value such as nn.zeros. Returns its kind and numbers; `default` replaces nil.
function check.init(who, value, default)
  if value == nil then return inits[default] end
  if not inits[value] then
    core.fail("wrong-type", ("%s: init must be nn.normal(mean, deviation), nn.uniform(from, to), nn.zeros "
      .. "or nn.ones, not %s"):format(who, check.kind_of(value)))
  end
  return inits[value]
end

-- Refuses a tensor whose features are segments stored by groups. An op over the last dimension
-- would take the groups for heads, so it needs a single segment.
function check.one_segment(who, id)
  if check.segments[id] then
    core.fail("fused-segments", ("%s: the input consists of segments of %s features, but one segment is needed"):format(who,
      table.concat(check.segments[id], ", ")), "take one segment: nn.segment(x, i)")
  end
end

return check
