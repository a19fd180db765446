-- Reads the configuration of another system, with its names and defaults. All dialects share this
-- file. It reports all errors at once, each with the line of its key. It contains nothing about a
-- particular system.
local _, core = ...
local dialect = {}

local function words(t)
  local list = {}
  for key in pairs(t) do if type(key) == "string" then list[#list + 1] = key end end
  return list
end

local function shown(value)
  if type(value) == "string" then return ("'%s'"):format(value) end
  return type(value) == "table" and "a table" or tostring(value)
end

local meta = { __metatable = false }
meta.__index = meta

-- Creates a reader of `config`. With as = "original", d.original is set: the plan then reproduces
-- the system's own mistakes, and they are reported as findings instead of errors.
function dialect.new(system, config)
  local d = setmetatable({ system = system, config = config, location = core.location(true), n_errors = 0 }, meta)
  if type(config) ~= "table" then
    core.fail("wrong-type", ("%s needs its configuration as a table, not %s"):format(system, type(config)),
      nil, d.location)
  end
  d.original = config.as == "original"
  if config.as ~= nil and not d.original then
    d:error("unknown-word", "as", ("as = %s is not known"):format(shown(config.as)),
      "as = \"original\" reproduces the system's own mistakes; without it, they are refused or corrected")
  end
  return d
end

-- Returns the line of a key of the configuration. path: "distributed.tp" or { "distributed",
-- "tp_plan", "model.norm" }. Returns nil if an error should name the line of the call.
function meta:at(path)
  local parts = type(path) == "table" and path or {}
  for part in (type(path) == "string" and path or ""):gmatch "[^.]+" do parts[#parts + 1] = part end
  return core.key_location(self.location, table.unpack(parts))
end

function meta:error(rule, path, text, hint)
  self.n_errors = self.n_errors + 1
  core.report(rule, text, hint, self:at(path))
  if self.original then core.stop() end  -- the original system stops at the first mistake
end
function meta:warn(rule, path, text, hint) core.warn(rule, text, hint, self:at(path)) end
function meta:note(rule, path, text, hint) core.note(rule, text, hint, self:at(path)) end

-- Reports a mistake of the original system: normally as an error, and with as = "original" as a finding. Returns true
-- for a finding.
function meta:mistake(rule, path, text, hint)
  if self.original then self:note(rule, path, text, hint) else self:error(rule, path, text, hint) end
  return self.original
end

-- If any error was reported so far, ends the script.
function meta:stop() core.stop() end

local function check_integer(value)
  return math.type(value) == "integer" or (math.type(value) == "float" and math.tointeger(value) ~= nil)
end
local kinds = {
  integer = { check_integer, "an integer" },
  number = { function(v) return type(v) == "number" and v == v end, "a number" },
  boolean = { function(v) return type(v) == "boolean" end, "true or false" },
  text = { function(v) return type(v) == "string" end, "a text" },
  word = { function(v) return type(v) == "string" end, "a text" },
  list = { function(v) return type(v) == "table" end, "a list" },
  any = { function() return true end, "a value" },
}

local function value_of(d, path, key, row, value)
  local kind = kinds[row[1]]
  if value == nil then return row[2] end
  if not kind[1](value) then
    d:error("wrong-type", path, ("%s must be %s, not %s"):format(path, kind[2], shown(value)))
    return row[2]
  end
  if row[1] == "integer" then return math.tointeger(value) end
  if row[1] ~= "word" then return value end
  for _, word in ipairs(row[3]) do if word == value then return value end end
  d:error("unknown-word", path, ("Unknown %s: %s = '%s'"):format(key, path, value),
    core.near(value, row[3]) or "options: " .. table.concat(row[3], ", "))
  return row[2]
end

-- Reports keys of `given` that `known` lacks. `where` is the original system's name for the
-- section.
function meta:known_keys(given, known, path, where)
  for key in pairs(given) do
    if known[key] == nil then
      local at = path ~= "" and path .. "." .. tostring(key) or tostring(key)
      self:error("unknown-key", at, ("Unknown config keys in %s: '%s'"):format(where, tostring(key)),
        core.near(tostring(key), words(known)) or "valid keys: " .. table.concat(words(known), ", "))
    end
  end
end

-- Returns a section of the configuration, with defaults for the keys that are missing. keys: name
-- -> { kind, default, words }.
function meta:section(name, keys, where)
  local given = self.config[name]
  if given == nil then given = {} end
  if type(given) ~= "table" then
    self:error("wrong-type", name, ("%s must be a table, not %s"):format(name, shown(given)))
    given = {}
  end
  self:known_keys(given, keys, name, where or name)
  local section = {}
  for key, row in pairs(keys) do
    section[key] = value_of(self, name .. "." .. key, key, row, given[key])
  end
  return section
end

-- Reports each of `keys` that is negative or, if `what` is "positive", 0, and removes it from the
-- section. what: "positive" or "non-negative", as messages say it.
function meta:bounded(section, name, keys, what)
  for _, key in ipairs(keys) do
    local value = section[key]
    if value and (value < 0 or (value == 0 and what == "positive")) then
      self:error("out-of-range", name .. "." .. key, ("%s must be %s: %s.%s = %.15g"):format(key, what, name, key, value))
      section[key] = nil
    end
  end
end

-- Returns the divisors of n up to `most` as a text: "1, 2, 4".
function dialect.divisors(n, most)
  local list = {}
  for k = 1, math.min(n, most or n) do if n % k == 0 then list[#list + 1] = tostring(k) end end
  return table.concat(list, ", ")
end

-- Returns the greatest common divisor of its arguments. Zeros and values that are not whole numbers
-- are skipped.
function dialect.common(...)
  local common, numbers = 0, { n = select("#", ...), ... }
  for i = 1, numbers.n do
    local a, b = common, math.type(numbers[i]) and math.tointeger(numbers[i]) or 0
    while b ~= 0 do a, b = b, a % b end
    common = a
  end
  return common
end

function dialect.copy(t)
  local own = {}
  for key, value in pairs(t) do own[key] = value end
  return own
end

-- wrap(f) returns the function of a dialect that scripts call. Errors of f are reported at the
-- caller's line.
dialect.wrap = core.wrap
return dialect
