-- Reads the cells of a row of published training runs, which are texts: numbers, words, and
-- refusals with a name.
local _, core = ...
local m = {}

function m.refuse(...) core.fail("published-row", string.format(...)) end

-- Returns the cell as a count; `default`, if given, for an empty cell.
function m.count(row, key, default)
  local cell = row[key] or ""
  if cell == "" and default then return default end
  if cell == "" then m.refuse("%s is not stated", key) end
  -- "50257 (padded; ...)": the number comes first
  local value = math.tointeger(tonumber(cell) or tonumber(cell:match "^%s*(%d+)%s"))
  if not value or value < 1 then m.refuse("%s is no number", key) end
  return value
end

function m.has(row, key, pattern) return (row[key] or ""):lower():find(pattern) ~= nil end

-- Reads a switch: true, false, or nil if the cell is empty.
function m.flag(row, key)
  local cell = (row[key] or ""):lower():match "^%s*([%w]*)"
  if cell == "" then return nil end
  if cell == "1" or cell == "yes" or cell == "true" or cell == "on" then return true end
  if cell == "0" or cell == "no" or cell == "false" or cell == "off" or cell == "none" then return false end
  m.refuse("%s is neither on nor off: %s", key, row[key])
end

-- Returns the ZeRO stage that the row states, 0 to 3; nil if it states none.
function m.stage(row)
  local cell = (row.zero_stage or ""):lower()
  local digit = cell:match "^%s*(%d)" or cell:match "zero[%s_-]*(%d)" or cell:match "stage[%s_-]*(%d)"
  if digit then return tonumber(digit) end
  if cell:find "^ddp" or cell:find "^none" then return 0 end
  if cell:find "distributed optimizer" or cell:find "dist[_-]?opt" then return 1 end
  if cell:find "hsdp" or cell:find "full_shard" or cell:find "^fsdp" then return 3 end
  return nil
end

-- True if weights are frozen and small matrices beside them are trained.
function m.is_lora(row) return m.has(row, "flag", "lora") or m.has(row, "model", "lora") or m.has(row, "framework", "lora") end

-- Documented defaults of a framework for cells that a row leaves open. Rows with such cells are
-- scored separately. Megatron-LM shards the optimizer only on request
-- (--use-distributed-optimizer); recipes of NeMo and Megatron-Bridge request it. None of them
-- recomputes by default. nanotron's ZeRO stage is 0, and torchtitan's recomputation is "selective".
local defaults = {
  { "^megatron%-lm", zero_stage = 0, ac = "none" }, { "^megatron%-core", zero_stage = 0, ac = "none" },
  { "^megatron%-bridge", zero_stage = 1, ac = "none" }, { "nemo", zero_stage = 1, ac = "none" },
  { "nvidia", zero_stage = 1, ac = "none" }, { "rocm", zero_stage = 1, ac = "none" }, { "llmboost", zero_stage = 1, ac = "none" },
  { "^megatron", zero_stage = 0, ac = "none" }, { "nanotron", zero_stage = 0, ac = "none" }, { "internevo", zero_stage = 1, ac = "none" },
  { "^torchtitan", zero_stage = 3, ac = "selective(op)" }, { "automodel", zero_stage = 3, ac = "none" },
  { "maxtext", zero_stage = 3, ac = "full" }, { "fsdp2", zero_stage = 3, ac = "none" }, { "fsdp", zero_stage = 3, ac = "none" },
  { "vescale", zero_stage = 3, ac = "none" }, { "torchtune", zero_stage = 3, ac = "none" }, { "^hf", zero_stage = 0, ac = "none" },
  { "hugging", zero_stage = 0, ac = "none" }, { "colossal", zero_stage = 0, ac = "none" }, { "neox", zero_stage = 0, ac = "none" }, { "hf trainer", zero_stage = 0, ac = "none" },
}

function m.default(row, key)
  for _, known in ipairs(defaults) do
    if m.has(row, "framework", known[1]) then return known[key] end
  end
  return nil
end

-- BERT's published vocabulary, padded as Megatron pads it: to a multiple of 128 x tp.
local function bert(row)
  local multiple = 128 * m.count(row, "tp")
  return tostring(-(-30522 // multiple) * multiple)
end

-- Fills the cells of `missing` for which the framework has a default, and a vocabulary that the
-- row's own words name. All other cells stay missing.
function m.take_defaults(row)
  local left = {}
  for key in row.missing:gmatch "%S+" do
    local own = m.default(row, key)
    local named = key == "vocab" and ((row.vocab_from or ""):match "default (%d+)%)" or m.has(row, "model", "^bert") and bert(row)) or nil
    if key == "zero_stage" and own then
      own = nil
    elseif key == "ac" and own then
      row.ac = own
    elseif named then
      row.vocab = named
    else
      left[#left + 1] = key
    end
  end
  row.missing = table.concat(left, " ")
end

-- Returns whether a word switches something on (true) or off (false); nil: another word, or none.
function m.switch(cell)
  local word = (cell or ""):lower():match "^%s*([%w]*)%s*$"
  if word == "yes" or word == "true" or word == "on" or word == "1" then return true end
  if word == "no" or word == "false" or word == "off" or word == "0" then return false end
  return nil
end

-- Returns whether the row uses sequence parallelism with tp.
function m.sequence(row) return m.switch(row.sp) == true end

-- Returns the state that the row keeps in host memory: "optimizer", "parameters", or nil.
function m.offloads(row)
  for _, key in ipairs { "zero_stage", "flag", "framework" } do
    local cell = (row[key] or ""):lower()
    if cell:find "offload" and not cell:find "no[%s_-]*offload" and not cell:find "without[%s_-]*offload" then
      return (cell:find "param" or cell:find "weights") and "parameters" or "optimizer"
    end
  end
  return nil
end

return m
