-- Values that several dialects read in the same way: nested sections, torch's dtypes, lists of
-- passes.
local _, core = ...
local values = {}

values.near = core.near

local kinds = { integer = "an integer", number = "a number", boolean = "true or false", text = "a text",
  list = "a list" }
local function fits(kind, value)
  if kind == "any" then return true end
  if kind == "integer" then return math.type(value) == "integer" end
  if kind == "text" then return type(value) == "string" end
  if kind == "list" then return type(value) == "table" end
  return type(value) == kind
end

-- Returns a section, at any depth, with its defaults. keys: name -> { kind, default }. told: the
-- message for an unknown key, with %s in the place of the key.
function values.section(d, path, given, keys, told)
  if type(given) ~= "table" then
    d:error("wrong-type", path, ("%s must be a table, not %s"):format(path, tostring(given)))
    given = {}
  end
  local own, names = {}, {}
  for key, row in pairs(keys) do own[key], names[#names + 1] = row[2], key end
  for key, value in pairs(given) do
    local row, at = keys[key], path .. "." .. tostring(key)
    if not row then
      d:error("unknown-key", at, (told or ("unknown key '%s' in " .. path)):format(tostring(key)),
        core.near(tostring(key), names) or "keys: " .. table.concat(names, ", "))
    elseif not fits(row[1], value) then
      d:error("wrong-type", at, ("%s must be %s, not %s"):format(at, kinds[row[1]], tostring(value)))
    else
      own[key] = value
    end
  end
  return own
end

-- Returns Tandem's name of a torch dtype, as in "bf16" for "torch.bfloat16" or "BFloat16". Returns
-- nil for nil, and after an error.
local dtypes = { float32 = "fp32", float = "fp32", fp32 = "fp32", float64 = "fp64", double = "fp64", fp64 = "fp64",
  bfloat16 = "bf16", bf16 = "bf16", float16 = "fp16", half = "fp16", fp16 = "fp16" }
function values.dtype(d, path, value)
  if value == nil then return nil end
  local name = type(value) == "string" and value:lower():match "^torch%.(.*)$" or tostring(value):lower()
  if dtypes[name] then return dtypes[name] end
  local known = {}
  for word in pairs(dtypes) do known[#known + 1] = word end
  d:error("unknown-word", path, ("%s = '%s' is not a dtype"):format(path, tostring(value)),
    core.near(name, known) or "for example bfloat16 or float32")
  return nil
end

-- Returns the number of devices of the cluster, or world_size if there is no cluster; nil: neither
-- is given. Reports an error if the two differ. The second result is true if world_size is invalid.
function values.world(d)
  local cluster, world = d.config.cluster, d.config.world_size
  local devices = type(cluster) == "table" and (cluster.nodes or 1) * (cluster.devices_per_node or 0) or 0
  if world ~= nil and (math.type(world) ~= "integer" or world < 1) then
    d:error("wrong-type", "world_size", ("world_size must be a positive integer, not %s"):format(
      type(world) == "string" and "'" .. world .. "'" or tostring(world)))
    return devices > 0 and devices or nil, true
  end
  if devices > 0 and world and world ~= devices then
    d:error("mesh-product", "world_size", ("world_size = %d, but the cluster has %d devices"):format(world, devices))
  end
  return devices > 0 and devices or world
end

-- Returns a list of those arguments after n that are not nil, in order. n: the number of arguments
-- after it.
function values.passes(n, ...)
  local list = {}
  for i = 1, n do
    local pass = select(i, ...)
    if pass then list[#list + 1] = pass end
  end
  return list
end

return values
