-- The cells of a row of published training runs, which are texts: numbers, words, and refusals by name.
local _, core = ...
local m = {}

function m.refuse(...) core.fail("published-row", string.format(...)) end

-- The cell as a count; `default` (where given) for an empty cell.
function m.count(row, key, default)
  local cell = row[key] or ""
  if cell == "" and default then return default end
  if cell == "" then m.refuse("%s is not stated", key) end
  -- "50257 (padded; ...)": the number leads
  local value = math.tointeger(tonumber(cell) or tonumber(cell:match "^%s*(%d+)%s"))
  if not value or value < 1 then m.refuse("%s is no number", key) end
  return value
end

function m.has(row, key, pattern) return (row[key] or ""):lower():find(pattern) ~= nil end

-- A cell that switches something on or off: true, false, or nil where it is empty.
function m.flag(row, key)
  local cell = (row[key] or ""):lower():match "^%s*([%w]*)"
  if cell == "" then return nil end
  if cell == "1" or cell == "yes" or cell == "true" or cell == "on" then return true end
  if cell == "0" or cell == "no" or cell == "false" or cell == "off" or cell == "none" then return false end
  m.refuse("%s is neither on nor off: %s", key, row[key])
end

-- The ZeRO stage that the row states, 0 to 3; nil where it states none.
function m.stage(row)
  local cell = (row.zero_stage or ""):lower()
  local digit = cell:match "^%s*(%d)" or cell:match "zero[%s_-]*(%d)" or cell:match "stage[%s_-]*(%d)"
  if digit then return tonumber(digit) end
  if cell:find "^ddp" or cell:find "^none" then return 0 end
  if cell:find "distributed optimizer" or cell:find "dist[_-]?opt" then return 1 end
  if cell:find "hsdp" or cell:find "full_shard" or cell:find "^fsdp" then return 3 end
  return nil
end

return m
