-- Reads the cells of a row of published training runs. A cell is a text with a number or a word. If
-- the row cannot become a plan, `refuse` names the reason.
local _, core = ...
local m = {}

function m.refuse(...) core.fail("published-row", string.format(...)) end
-- Records that a value was assumed because the row does not give it, or that a part of the plan
-- stands for another part.
function m.note(...) core.note("assumed-cell", string.format(...)) end

-- Records an assumed value that changes only the row's time, not its memory.
function m.note_time(...) core.note("assumed-time", string.format(...)) end

-- Records that the row's step time is not to be compared with a prediction.
function m.untimed(why) core.note("untimed-row", ("the step time depends on %s, which the row does not state"):format(why)) end

-- True if a cell is empty. `tandem accuracy` empties cells that say in words that a value is not known
-- (cli/accuracy/csv.c).
function m.is_open(cell) return (cell or "") == "" end

-- Returns the cell as a count. An empty cell, and a degree of 0, give `default` if there is one.
-- Words after the number are ignored: "50257 (padded; ...)", "8,192", "8k".
function m.count(row, key, default)
  local cell = row[key] or ""
  if m.is_open(cell) then return default or m.refuse("%s is not stated", key) end
  local digits, unit = cell:match "^%s*(%d[%d,]*)([kK]?)"
  local value = tonumber(cell) or digits and tonumber((digits:gsub(",", ""))) * (unit ~= "" and 1024 or 1)
  value = math.tointeger(value)
  if default and (value == 0 or cell:lower():find "^%s*no") then return default end
  if not value or value < 1 then m.refuse("%s is not a number: %s", key, cell:sub(1, 40)) end
  return value
end

function m.has(row, key, pattern) return (row[key] or ""):lower():find(pattern) ~= nil end

-- Reads a switch: returns true, false, or nil if the cell is empty. Any other word, such as
-- "deepep", counts as true.
function m.flag(row, key)
  if m.is_open(row[key]) then return nil end
  local word = row[key]:lower():match "^%s*([%w]*)"
  return not (word == "0" or word == "no" or word == "false" or word == "off" or word == "none" or word == "disabled")
end

-- Returns the row's ZeRO stage, 0 to 3. Returns nil if the row gives none, or in unknown words.
function m.stage(row)
  if m.is_open(row.zero_stage) then return nil end
  local cell = row.zero_stage:lower()
  local digit = cell:match "^%s*(%d)" or cell:match "zero[%s_-]*(%d)" or cell:match "stage[%s_-]*(%d)"
  if digit then return tonumber(digit) <= 3 and tonumber(digit) or nil end
  if cell:find "^ddp" or cell:find "^no" or cell:find "^false" or cell:find "^off" then return 0 end
  if cell:find "shard_grad_op" then return 2 end
  if cell:find "distributed optimizer" or cell:find "dist[_-]?opt" then return 1 end
  if cell:find "hsdp" or cell:find "hybrid" or cell:find "full[%s_-]?shard" or cell:find "fsdp" then return 3 end
  return nil
end

-- is_float8: true if products have 8-bit operands. is_float4: true if they have 4-bit operands.
function m.is_float8(row)
  return m.has(row, "precision", "float8") or m.has(row, "precision", "fp8") or m.has(row, "precision", "wise") or
    m.has(row, "precision", "e4m3") or m.has(row, "precision", "mx.*8")
end
function m.is_float4(row) return m.has(row, "precision", "fp4") end

-- True if the weights are frozen and small added matrices are trained (LoRA).
function m.is_lora(row) return m.has(row, "flag", "lora") or m.has(row, "model", "lora") or m.has(row, "framework", "lora") end

-- Returns true if the word means "on", false if it means "off", and nil for any other word or an empty cell.
function m.switch(cell)
  local word = (cell or ""):lower():match "^%s*([%w]*)%s*$"
  if word == "yes" or word == "true" or word == "on" or word == "1" then return true end
  if word == "no" or word == "false" or word == "off" or word == "0" then return false end
  return nil
end

-- True if the row's optimizer is Adam with states of usual width.
function m.is_adam(row) return m.has(row, "optimizer", "adam") and not m.has(row, "optimizer", "8[%s_%-]*bit") and not m.has(row, "optimizer", "mini") end

-- True if the row uses sequence parallelism together with tp.
function m.sequence(row) return m.switch(row.sp) == true end

-- Returns the state that the row keeps in host memory: "optimizer", "parameters", "activations" or nil. If the
-- row says only "offload", DeepSpeed and Megatron offload the optimizer, and FSDP also offloads the parameters.
function m.offloads(row)
  for _, word in ipairs { "optimizer", "parameters", "activations" } do if row.offload == word then return word end end
  local first = m.stage(row) == 2 or m.stage(row) == 1 or m.has(row, "framework", "xtuner") or m.has(row, "framework", "deepspeed") or m.has(row, "framework", "megatron") or m.has(row, "framework", "nemo")
  for _, key in ipairs { "zero_stage", "flag", "framework" } do
    local cell = (row[key] or ""):lower()
    if cell:find "offload" and not cell:find "no[%s_-]*offload" and not cell:find "without[%s_-]*offload" then
      if cell:find "activ" then return "activations" end
      return (cell:find "optim" or first and not cell:find "param" and not cell:find "weights") and "optimizer" or "parameters"
    end
  end
  return nil
end

return m
