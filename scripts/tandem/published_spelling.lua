-- Spellings of the same cell. Sources write a switch, a count, a ZeRO stage or a recomputation in their own words; this file
-- turns them into the words that the tables of published runs use. A word that it does not know is refused by name, so that no
-- row is silently read otherwise.
local cells = require "tandem.published_cells"
local m = {}

local function refuse(key, cell) cells.refuse("%s is not known: %s", key, cell:sub(1, 60)) end

-- ---- counts

local counts = { "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab", "moe_experts", "moe_topk", "n_gpus", "gpus_per_node",
  "tp", "pp", "vp", "cp", "ep", "dp_shard", "dp_replicate", "micro_batch", "global_batch_seqs", "seq" }

-- "8,192", "64.0", "64 GPUs", "50257 (padded)", "8k"; nodes x GPUs of each for n_gpus: "8x8", "8 nodes x 8". Other cells with
-- several numbers ("4-8", "4/8", "2x4") say nothing certain, and "4M tokens" counts something else. Returns nil for words.
local function whole(row, key)
  local cell = row[key]
  local text = cell:match "^%s*(.-)%s*$"
  local plain = tonumber((text:gsub("(%d),(%d%d%d)", "%1%2")))
  if plain then return math.tointeger(plain) or refuse(key, cell) end
  local nodes, each = text:match "^(%d+)%s*%a*%s*[xX*]%s*(%d+)%s*%a*$"
  if nodes then
    if key ~= "n_gpus" then refuse(key, cell) end
    return math.tointeger(tonumber(nodes) * tonumber(each))
  end
  local digits, unit, rest = text:match "^(%d[%d,]*)([kK]?)(.*)$"
  if not digits then return nil end
  -- the words behind a count begin with a space, a bracket or a semicolon
  if rest ~= "" and not rest:find "^[%s%(%[;]" or rest:find "^%s*[%-/+~]" or rest:find "^%s*[xX*]%s*%d" then refuse(key, cell) end
  local scaled = rest:find "^%s*[kKmMbB]%f[%A]" or key == "global_batch_seqs" and rest:lower():find "token"
  local shared = (key == "global_batch_seqs" or key == "n_gpus") and rest:find "%f[%a]per%f[%A]" -- not the whole of it
  if scaled or shared or unit ~= "" and key ~= "seq" and key ~= "global_batch_seqs" then refuse(key, cell) end
  return math.tointeger(tonumber((digits:gsub(",", ""))) * (unit ~= "" and 1024 or 1))
end

-- ---- words

local yes = { ["1"] = true, ["1.0"] = true, yes = true, y = true, ["true"] = true, on = true, enabled = true }
local no = { ["0"] = true, ["0.0"] = true, no = true, n = true, ["false"] = true, off = true, none = true, disabled = true, eager = true }

-- The first word of a cell, in lower case: "no (TE graphs)" is "no".
local function word_of(cell) return cell:lower():match "^%s*([%w%.]*)" end

local function switch(row, key, on, off)
  local word = word_of(row[key])
  if yes[word] then row[key] = on elseif no[word] then row[key] = off else return false end
  return true
end

-- Recomputation. A cell begins with the table's own word, or it has one of them among others: "activation checkpointing (full)".
local recomputes = { "full", "selective", "none", "see recipe" }
local function recomputation(row)
  if switch(row, "ac", "full", "none") then return end
  local text = row.ac:match "^%s*(.-)%s*$"
  local lower, found, n = text:lower(), nil, 0
  for _, word in ipairs(recomputes) do
    if lower:find("^" .. word) then
      row.ac = word .. text:sub(#word + 1)
      return
    end
    if lower:find("%f[%a]" .. word .. "%f[%A]") then found, n = word, n + 1 end
  end
  if n == 0 and (lower:find "^every layer" or lower:find "^all layers" or lower:find "^gradient.checkpointing") then found, n = "full", 1 end
  if lower:find "^default" then found, n = "", 1 end -- the framework's
  if n ~= 1 then refuse("ac", row.ac) end
  row.ac = found
end

-- Words of precision that a plan can have; Lightning's "16-mixed" is fp16, "32-true" fp32.
local precisions = { "bf16", "bfloat16", "fp16", "float16", "fp8", "float8", "wise", "e4m3", "mx", "fp4", "fp32", "float32", "tf32" }
local function precision(row)
  local text = row.precision:lower()
  if text:find "^16%-" or text:find "^half" then row.precision = "fp16" return end
  if text:find "^32%-" or text:find "^32$" then row.precision = "fp32" return end
  if text:find "float16" and not text:find "bfloat16" then row.precision = row.precision .. " fp16" end
  if text:find "^mixed" then row.precision = "" return end
  for _, word in ipairs(precisions) do if text:find(word) then return end end
  refuse("precision", row.precision)
end

-- HSDP replicates groups of ranks that shard. A row that states no group has PyTorch's default one, a node (_init_utils.py).
local function hybrid(row)
  if not row.zero_stage:lower():find "hsdp" and not row.zero_stage:lower():find "hybrid" then return end
  if not cells.is_open(row.dp_shard) and not cells.is_open(row.dp_replicate) then return end
  local node, n = cells.count(row, "gpus_per_node", 8), cells.count(row, "n_gpus")
  local sharers = cells.count(row, "tp", 1) * cells.count(row, "pp", 1) * cells.count(row, "cp", 1)
  local shard = cells.is_open(row.dp_shard) and math.max(1, node // sharers) or cells.count(row, "dp_shard")
  if n // sharers % shard ~= 0 then refuse("zero_stage", row.zero_stage) end
  row.dp_shard, row.dp_replicate = tostring(shard), tostring(n // sharers // shard)
  cells.note("the ranks that share weights are not stated; a group of %d is assumed", shard)
end

-- Turns the cells of a row into the tables' words.
function m.normalise(row)
  for _, key in ipairs(counts) do
    local open = cells.is_open(row[key]) or row[key]:lower():find "^%s*no" or row[key]:lower():find "per dp"
    local n = not open and whole(row, key)
    if n then row[key] = tostring(n) end
  end
  for _, key in ipairs { "moe_experts", "moe_topk" } do  -- a model without experts
    if cells.is_open(row[key]) or row[key] == "0" or cells.has(row, key, "^%s*no") then row[key] = "" end
  end
  if not cells.is_open(row.sp) and not switch(row, "sp", "1", "0") and not cells.has(row, "sp", "^ulysses") then refuse("sp", row.sp) end
  if not cells.is_open(row.compile) and not switch(row, "compile", "yes", "no") then
    if not cells.has(row, "compile", "compile") and not cells.has(row, "compile", "inductor") then refuse("compile", row.compile) end
    row.compile = "yes"
  end
  if not cells.is_open(row.ac) then recomputation(row) end
  if not cells.is_open(row.precision) then precision(row) end
  if not cells.is_open(row.zero_stage) and cells.stage(row) == nil then refuse("zero_stage", row.zero_stage) end
  if not cells.is_open(row.n_gpus) and not cells.is_open(row.zero_stage) then hybrid(row) end
end

return m
