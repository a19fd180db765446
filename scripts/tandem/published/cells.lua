-- Reads the cells of a row of published training runs. A cell is a text with a number or a word. If
-- the row cannot become a plan, `refuse` names the reason.
local _, core = ...
local m = {}

function m.refuse(...) core.fail("published-row", string.format(...)) end
-- Records that the plan differs from the row: a value was assumed because the row does not give it,
-- or the plan has something else in place of a feature that plans lack.
function m.note(...) core.note("assumed-cell", string.format(...)) end

-- Records that a stated cell does not change the plan.
function m.leave_out(...) core.note("left-out-cell", string.format(...)) end

-- Records an assumed value that changes only the row's time, not its memory.
function m.note_time(...) core.note("assumed-time", string.format(...)) end

-- Records that a cell was filled from a measured result of the row.
function m.note_measured(...) core.note("measured-cell", string.format(...)) end

-- Records the date and the name of the row's framework.
function m.note_framework(text) core.note("known-framework", text) end

-- Records that the row's step time is not to be compared with a prediction.
function m.untimed(why) core.note("untimed-row", ("the step time depends on %s, which the row does not state"):format(why)) end

-- Returns true if a cell is empty. `tandem accuracy` empties cells that say in words that a value
-- is not known (cli/accuracy/csv.c).
function m.is_open(cell) return (cell or "") == "" end

-- Returns the cell as a positive integer, or refuses the row. An empty cell, a 0 and "no" give
-- `default` if there is one. Words after the number are ignored: "50257 (padded; ...)", "8,192",
-- "8k".
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

-- deniers: words that deny the name after them, as in "without zero bubble". between: words that
-- may stand between a denier and the name: "not using LoRA", "no CPU offload".
local deniers = { no = true, ["not"] = true, non = true, without = true, ["w/o"] = true, never = true }
local between = { using = true, use = true, used = true, with = true, the = true, a = true, an = true, any = true, torch = true, cpu = true, host = true,
  optimizer = true, activation = true, activations = true, weight = true, parameter = true, full = true }
-- off: words that deny the name before them: "SP off", "offload (disabled)".
local off = { off = true, ["false"] = true, disabled = true, unused = true }
local used = { used = true, enabled = true, applied = true, active = true, on = true, set = true }

-- Returns the length of the words that follow a name and deny it: "=0", ": no", " (off)", " not
-- used". Returns nil if there are none. (In "ZeRO-3 (no offload)", the words after ZeRO-3 deny
-- offload, not ZeRO-3.)
local function denial_after(tail)
  local mark, word, more = tail:match "^[%s_%-]*([%(%[:=]*)%s*([%w/]+)(.*)$"
  if not word then return nil end
  local denies = off[word]
  if word == "0" then denies = mark ~= "" and not more:find "^%.%d" end
  if word == "no" or word == "none" then denies = mark:find "=" or not more:find "^%s+%a" end
  if word == "not" and used[more:match "^%s+(%a+)" or ""] then denies, more = true, more:gsub("^%s+%a+", "") end
  return denies and #tail - #more or nil
end

-- Returns where a denied name begins and ends in a text in lower case, including the words that
-- deny it, or nil if the text does not deny it. from, to: the place of the name alone.
local function denied_at(text, from, to)
  local head, word = text:sub(1, from - 1), nil
  repeat
    head, word = head:match "^(.-)([%a/]+)[%s_%-%.]*$"
    if deniers[word or ""] then return #head + 1, to end
  until not between[word or ""]
  local tail = text:sub(to + 1)
  local glued = #tail:match "^[%w_%-]*"
  local n = denial_after(tail)
  if n then return from, to + n end
  n = denial_after(tail:sub(glued + 1))
  if n then return from, to + glued + n end
end

-- Returns a text without the names that it denies and without the words that deny them, and true if
-- there were any. names: patterns in lower case.
function m.without_denied(text, names)
  local any = false
  for _, name in ipairs(names) do
    local from, to = text:lower():find(name)
    while from do
      local first, last = denied_at(text:lower(), from, to)
      if first then text, any = text:sub(1, first - 1) .. text:sub(last + 1), true end
      from, to = text:lower():find(name, first or to + 1)
    end
  end
  return text, any
end

-- Returns true if the text has a name that it does not deny.
function m.affirms(text, name) return m.without_denied(text or "", { name }):lower():find(name) ~= nil end

function m.has(row, key, pattern) return (row[key] or ""):lower():find(pattern) ~= nil end

local no = { ["0"] = true, n = true, ["not"] = true, non = true, without = true, no = true, ["false"] = true, off = true, none = true, disabled = true,
  never = true, unused = true, unfused = true }

-- Reads a switch. Returns true or false, or nil if the cell is empty or says "default". Any other
-- word, such as "deepep", counts as true, unless the cell denies it: "overlap: off".
function m.flag(row, key)
  if m.is_open(row[key]) then return nil end
  local word = row[key]:lower():match "^%s*([%w]*)"
  if word == "default" then return nil end
  if row[key]:lower():find "^%s*w/o" or row[key]:lower():find "^%s*%-%-no%-" then return false end
  local text = row[key]:lower()
  local last = text:match "^[%w%s_%-]+[%s:=%(%[]+(%w+)%W*$"
  return not (no[word] or no[last] or used[text:match "%f[%a]not%s+(%a+)%W*$" or ""])
end

-- Words for ZeRO stages. Stage 0 is searched first, and the first match counts. "os+g" is stage 2
-- of the ZeRO paper, and "optim_grads" that of Megatron-FSDP.
local stages = {
  [0] = { "optimizer[%s:=]+no%f[%A]", "optimizer[%s:=]+false", "optimizer[%s:=]+off", "^%s*ddp", "^%s*no", "unsharded", "zero[%s:=]*off", "zero[%s:=]*no", "^%s*without", "^%s*w/o", "^%s*false", "^%s*off", "^%s*plain", "^%s*data%s?parallel", "^%s*dp%s*$", "^%s*dp%s+only", "^%s*vanilla%s*$", "^%s*vanilla%s+d[dp]", "^%s*%a*%s*replicate", "^%s*pytorch%s+ddp%s*$" },
  [1] = { "dist%a*%.?[%s_-]*optimizer", "dist%a*%.?[%s_-]?opt", "distributed[%s_-]fused[%s_-]adam", "optimizer%s*states?%s*$", "optimizer%s*states?%s*shard", "^%s*optim%s*$", "^%s*p?_?os%s*$", "^%s*oss%s*$", "^%s*optimizer%s+only", "adam%a*%s+states?%s+shard", "^%s*bf16[_%s]*optimizer", "low[_%s-]level[_%s-]zero", "sharded optimizer", "^%s*do%s*[:=]%s*true" },
  [2] = { "shard_grad_op", "^%s*sharded%s*ddp", "^%s*grad%a*%s*%+%s*optim%a*%s*$", "optim_grads%s*$", "os%s*%+%s*g%s*$", "zero%-?2" },
  [3] = { "hsdp", "hybrid", "full[%s_-]?shard", "fsdp", "fully[%s_%-]?shard", "optim_grads_params", "os%s*%+%s*g%s*%+%s*p", "zero%-?infinity", "zero%+%+", "gemini", "^%s*mics%f[%A]" },
}

-- Names of ways to shard states, which a cell may deny: "FSDP off", "no ZeRO-3",
-- "use_distributed_optimizer=0".
local sharing = { "zero[%s_%-]*%d?", "[fh]sdp%d?", "hybrid", "dist%a*[%s_%-]*opt%a*", "%f[%a]shard%a*" }

-- Returns true if a text in lower case offers several stages: "1-3", "ZeRO-1/2", "stage 1 or 2".
local function has_several(text)
  if text:find "hsdp" or text:find "hybrid" then return false end
  return text:find "%f[%w%.][0-3]%s*[/|&]%s*%a*%-?[0-3]%f[^%w%.]" or text:find "%f[%w%.][0-3]%s*%-%s*[0-3]%f[^%w%.]" or text:find "[0-3]%s*–%s*[0-3]%f[^%w]" or text:find "zero[%s_%-]*[0-3]%s*[/|&%-]%s*[0-3]%f[^%w]" or
    text:find "%f[%w][%a]*[%s%-]*[0-3]%s+or%s+%a*[%s%-]*[0-3]%f[^%w]" or text:find "[0-3]%s+to%s+%a*[%s%-]*[0-3]%f[^%w]" or text:find "zero[%s_%-]*[0-3]%s*,%s*[0-3]%s*$" or text:find "[0-3]%s*,%s*[0-3]%s*,?%s*a?n?d?%s*,?%s*[0-3]%f[^%w]"
end

-- Returns the stage that a text in lower case names; nil: it names none, several, or in unknown words. A stage of a pipeline does not count.
local function named_stage(cell)
  cell = cell:gsub("pipe%a*[%s_%-]*stages?[%s_=:%-]*%d*", "")
  if has_several(cell) then return nil end
  if cell:find "^%s*ddp" and cell:find "dist%a*[%s_-]*optimizer" and not cell:find "optimizer[%s:=]+no" then return 1 end -- Megatron's DDP can shard the optimizer
  local digit = cell:match "^%s*(%d)%f[^%w]" or cell:match "zero[%s_-]*stage[%s_=:-]*(%d)" or cell:match "zero[%s_=:-]*(%d)" or cell:match "stage[%s_=:\"'-]*(%d)"
  if digit then return tonumber(digit) <= 3 and tonumber(digit) or nil end
  digit = cell:match "%f[%a]z%-?(%d)%f[%W]" or cell:match "_z(%d)%f[%W_]"
  if digit then return tonumber(digit) <= 3 and tonumber(digit) or nil end
  local roman = cell:match "zero[%s_-]*(i+)%f[%A]" or cell:match "stage[%s_-]*(i+)%f[%A]"
  if roman then return #roman <= 3 and #roman or nil end
  local list = "param%a*[%s,&+/]+a?n?d?%s*grad%a*[%s,&+/]+a?n?d?%s*optim"
  if cell:find(list) and cell:find "shard" then return 3 end
  if cell:find "hsdp" or cell:find "hybrid" then return 3 end -- other numbers in the cell are group sizes
  for stage = 0, 3 do
    for _, word in ipairs(stages[stage]) do if cell:find(word) then return stage end end
  end
  return nil
end

-- Returns the stage that the name of a framework gives: "DeepSpeed ZeRO-3"; nil: it gives none. Refuses a name with ZeRO but
-- without a stage.
function m.stage_of_framework(name)
  local text = m.without_denied(name:lower(), { "zero[%s_%-]*%d?" })
  local named = text:find "zero" or text:find "deepspeed" and text:find "%f[%a]stage"
  if not named then return nil end
  if has_several(text:gsub("[%d%.]+%.[%d%.]+", "")) then m.refuse("framework names several stages of ZeRO: %s", name:sub(1, 60)) end
  text = text:gsub("pipe%a*[%s_%-]*stages?[%s_=:%-]*%d*", "")
  local stage = text:match "zero[%s_%-]*s?t?a?g?e?[%s_=%-]*(%d)%f[%D]" or text:find "deepspeed" and text:match "%f[%a]stage[%s_=%-]*(%d)%f[%D]"
  if stage then return stage end
  for _, word in ipairs { "zero[%s_%-]*infinity", "zero%+%+" } do if text:find(word) then return "3" end end -- both extend stage 3
  if text:find "%f[%a]zero%f[%A]" and not text:find "zero[%s_%-]*bubble" then m.refuse("the stage of ZeRO is not stated: %s", name:sub(1, 60)) end
  return nil
end

-- Returns the row's ZeRO stage, 0 to 3, or nil if the row names none in known words. FSDP that
-- keeps gathered weights for the backward pass counts as stage 2.
function m.stage(row)
  if m.is_open(row.zero_stage) then return nil end
  local cell, denied = m.without_denied(row.zero_stage:lower(), sharing)
  local resharded, kept = m.without_denied(cell, { "reshard%a*" })
  local stage = named_stage(resharded)
  if stage == 3 and kept and cell:find "fsdp" then return 2 end
  return stage or denied and 0 or nil
end

-- Returns a measured number of the row, such as the tokens in a second ("10,500", "10.5k", "10500
-- tok/s"), or nil if the cell is empty. Refuses a cell with other words.
function m.number(row, key)
  if m.is_open(row[key]) then return nil end
  local text = row[key]:match "^%s*~?(.-)%s*$"
  local digits, rest = text:match "^(%d[%d,]*%.?%d*)%s*(.*)$"
  local plain = tonumber(text)
  if plain and not text:find "[xX]" then return plain end
  if not digits or digits:find "," and not digits:find "^%d%d?%d?,%d%d%d" or digits:gsub(",%d%d%d%f[%D]", ""):find "," then m.refuse("%s is not a number: %s", key, text:sub(1, 40)) end
  local thousand = rest:find "^[kK]%f[%A]"
  if rest:find "%d" then m.refuse("%s is not a number: %s", key, text:sub(1, 40)) end
  return tonumber((digits:gsub(",", ""))) * (thousand and 1000 or 1)
end

-- Returns the row's step time in seconds, as cli/accuracy/runs.c reads it, or nil if the cell is
-- empty.
function m.seconds(row)
  local n, text = m.number(row, "step_time_s"), (row.step_time_s or ""):lower()
  if not n then return nil end
  if text:find "%d%s*ite?r?s?%a*%s*/" or text:find "%d%s*steps?%s*/" or text:find "%d%s*%a+%s*per%s+sec" then return n > 0 and 1 / n or nil end
  return n * (text:find "%d%s*min" and 60 or text:find "%d%s*m" and 1e-3 or 1)
end

-- is_float8 and is_float4 return true if products have 8-bit or 4-bit operands.
function m.is_float8(row)
  return m.has(row, "precision", "float8") or m.has(row, "precision", "fp8") or m.has(row, "precision", "wise") or
    m.has(row, "precision", "e4m3") or m.has(row, "precision", "mx.*8")
end
function m.is_float4(row) return m.has(row, "precision", "fp4") end

-- Returns true if the model's weights are frozen and small matrices beside them are trained (LoRA).
function m.is_lora(row)
  for _, key in ipairs { "flag", "model", "framework" } do if m.affirms(row[key], "q?lora") then return true end end
  return false
end

-- Returns true if the word means "on", false if it means "off", and nil for any other word or an empty cell.
function m.switch(cell)
  local word = (cell or ""):lower():match "^%s*([%w]*)%s*$"
  if word == "yes" or word == "true" or word == "on" or word == "1" then return true end
  if word == "no" or word == "false" or word == "off" or word == "0" then return false end
  return nil
end

-- Optimizers by name; the first match counts. An 8-bit moment takes 1 byte, and 4 bytes for the
-- scale of 256 numbers (bitsandbytes: optimizer_update_8bit_blockwise). Adafactor's two vectors for
-- a matrix are left out.
-- adam: two moments of the usual width
-- one: one moment of the usual width
-- bytes: the bytes of all moments of a weight, if their width is not the usual one
-- kind: source; the optimizers' papers and PyTorch's, bitsandbytes' and transformers' implementations
local eight = 2 * (1 + 4 / 256)
local optimizers = {
  { "muon", one = true }, -- beside Muon, AdamW updates only vectors and embeddings
  { "adam%a*[%s_%-]*mini", one = true }, { "adam.*8[%s_%-]*bit", bytes = eight, adam = true }, { "8[%s_%-]*bit.*adam", bytes = eight, adam = true },
  { "lion.*8[%s_%-]*bit", bytes = eight / 2 }, { "8[%s_%-]*bit.*lion", bytes = eight / 2 }, { "adam", adam = true }, { "lion", one = true },
  { "adafactor", bytes = 0.01 }, { "momentum", one = true }, { "sgd", bytes = 0.01 },
}

-- Returns the entry of `optimizers` for the row, or nil if the cell is empty or names another
-- optimizer.
function m.optimizer(row)
  local text = m.without_denied((row.optimizer or ""):lower(), { "8[%s_%-]*bit", "%a*momentum", "adam%a*", "lion", "adafactor", "muon", "sgd" })
  for _, known in ipairs(optimizers) do if text:find(known[1]) then return known end end
  return nil
end

-- Returns the number of ranks that train on the same samples: tp x pp x the ranks that share a
-- sequence. For Ulysses, the cell sp gives the number of ranks that share a sequence.
function m.replica(row)
  local n = math.tointeger(tonumber((row.sp or ""):match "^ulysses (%d+)")) or m.count(row, "cp", 1)
  return m.count(row, "tp", 1) * m.count(row, "pp", 1) * n
end

-- Returns true if the row uses sequence parallelism together with tp.
function m.sequence(row) return m.switch(row.sp) == true end

-- Returns true if a cell in lower case says that a state is offloaded: "offload_optimizer",
-- "optimizer states offload", "offload: optimizer". word: the beginning of the state's name
local function offloads_state(cell, word)
  return cell:find(word .. "%a*[%s_%-]*s?t?a?t?e?s?[%s_%-]*[%a]*[%s_%-]*offload") or cell:find("offload%a*[%s_%-:=%(]*" .. word) or cell:find("offload%a*%s+of%s+t?h?e?%s*" .. word)
end

-- Returns the state that the row keeps in host memory: "optimizer", "parameters", "activations" or
-- nil. If the row says only "offload": DeepSpeed and Megatron then offload the optimizer, and FSDP
-- also offloads the parameters.
function m.offloads(row)
  for _, word in ipairs { "optimizer", "parameters", "activations" } do if row.offload == word then return word end end
  local first = m.stage(row) == 2 or m.stage(row) == 1 or m.has(row, "framework", "xtuner") or m.has(row, "framework", "deepspeed") or m.has(row, "framework", "megatron") or m.has(row, "framework", "nemo")
  for _, key in ipairs { "zero_stage", "flag", "framework" } do
    local cell = (row[key] or ""):lower()
    if m.affirms(cell, "offload") then
      if cell:find "activ" and not offloads_state(cell, "optim") and not offloads_state(cell, "param") then return "activations" end
      return (cell:find "optim" or first and not cell:find "param" and not cell:find "weights") and "optimizer" or "parameters"
    end
  end
  return nil
end

-- Returns true if the row keeps activations in host memory. It may offload the optimizer, too.
function m.offloads_activations(row)
  if row.offload == "activations" then return true end
  for _, key in ipairs { "ac", "zero_stage", "flag", "framework" } do
    local cell = (row[key] or ""):lower()
    local other = offloads_state(cell, "optim") or offloads_state(cell, "param") -- "full (optimizer offload)"
    local says = offloads_state(cell, "activ") or cell:find "offload%a*%s+optim%a*%s+%a*%s*and%s+activ" or not other and (key == "ac" or cell:find "activ")
    if says and m.affirms(cell, "offload") then return true end
  end
  return false
end

return m
