-- Spellings of the same cell. Sources write a switch, a count, a ZeRO stage or a recomputation in their own words; this file
-- turns them into the words that the tables of published runs use. A word that it does not know is refused by name, so that no
-- row is silently read otherwise.
local cells = require "tandem.published.cells"
local m = {}

local function refuse(key, cell) cells.refuse("%s is not known: %s", key, cell:sub(1, 60)) end

-- ---- counts

local counts = { "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab", "moe_experts", "moe_topk", "n_gpus", "gpus_per_node",
  "tp", "pp", "vp", "cp", "ep", "dp_shard", "dp_replicate", "micro_batch", "global_batch_seqs", "seq" }

-- Counts for which a cell may give only a part of the whole: "8 per GPU", "2/node", "4 a GPU".
local wholes = { n_gpus = true, global_batch_seqs = true, n_layers = true, moe_experts = true }
local parts = { "/", "%f[%a]per%f[%A]", "%f[%a]each%f[%A]", "%f[%a]an? %a*gpu", "%f[%a]an? node" }
local large = { "^%s*[kmb]%f[%A]", "^%s*thousand", "^%s*million", "^%s*billion" }

local function finds(text, patterns)
  for _, pattern in ipairs(patterns) do if text:find(pattern) then return true end end
  return false
end

-- Returns a text in lower case, without its parts in brackets.
local function unbracketed(text) return (text:lower():gsub("%b()", " "):gsub("%b[]", " ")) end

-- Sizes. They are large numbers, and a cell never lists several of them.
local sizes = { d_model = true, d_ff = true, vocab = true, seq = true, global_batch_seqs = true }

-- True if the commas in a number separate thousands, as in "14,336". In a column that is no size, commas could also
-- separate several numbers ("8,128" GPUs). There, only a group that begins with 0 is certain: "1,024".
local function has_thousands(digits, key)
  local groups = digits:match "^%d%d?%d?(,.*)$"
  return groups and groups:gsub(",%d%d%d%f[%D]", "") == "" and (sizes[key] or groups:find "^,0") ~= nil
end

-- "8,192", "64.0", "64 GPUs", "50257 (padded)", "8k"; nodes x GPUs of each for n_gpus: "8x8", "8 nodes x 8". `has_thousands` says
-- when a comma separates thousands. Other cells with several numbers ("4-8", "4/8", "8,16", "4 or 8", "2x4") say nothing certain, and "4M tokens" or
-- "2 nodes" counts something else. Returns nil for words.
local function whole(row, key)
  local cell = row[key]
  local text = cell:match "^%s*(.-)%s*$"
  local plain = not text:find "[xX]" and tonumber(text)
  if plain then return math.tointeger(plain) or refuse(key, cell) end
  local nodes, each = text:match "^(%d+)%s*%a*%s*[xX*]%s*(%d+)%s*%a*$"
  if nodes then
    if key ~= "n_gpus" then refuse(key, cell) end
    return math.tointeger(tonumber(nodes) * tonumber(each))
  end
  local digits, unit, rest = text:match "^(%d[%d,]*)([kK]?)(.*)$"
  if not digits then return nil end
  if digits:find "," and not has_thousands(digits, key) then refuse(key, cell) end
  -- after a count, other words must begin with a space, a bracket or a semicolon
  if rest ~= "" and not rest:find "^[%s%(%[;]" or rest:find "^%s*[%-/+~]" then refuse(key, cell) end
  local words = unbracketed(rest)
  local other = words:find "%d" or key == "n_gpus" and words:find "node" or key == "global_batch_seqs" and rest:lower():find "token"
  if other or finds(words, large) or wholes[key] and finds(words, parts) then refuse(key, cell) end
  if unit ~= "" and key ~= "seq" and key ~= "global_batch_seqs" then refuse(key, cell) end
  return math.tointeger(tonumber((digits:gsub(",", ""))) * (unit ~= "" and 1024 or 1))
end

-- ---- words

local yes = { ["1"] = true, ["1.0"] = true, yes = true, y = true, ["true"] = true, on = true, enabled = true }
local no = { ["0"] = true, ["0.0"] = true, no = true, n = true, ["false"] = true, off = true, none = true, disabled = true, eager = true }

-- Returns the first word of a cell in lower case: "no" for "no (TE graphs)".
local function word_of(cell) return cell:lower():match "^%s*([%w%.]*)" end

local function switch(row, key, on, off)
  local word = word_of(row[key])
  if yes[word] then row[key] = on elseif no[word] then row[key] = off else return false end
  return true
end

-- Recomputation. A cell begins with a switch or the table's own word, or it has one of these words among others: "activation
-- checkpointing (full)". A cell that also has another of them, or denies the word, says nothing certain: "none / full", "full: no".
local recomputes = { "full", "selective", "none", "see recipe" }
local denials = { "no", "not", "non", "off", "false", "without", "disabled", "never" }

-- Counts which of the words a text in lower case contains. Returns the first of them, and their
-- number.
local function among(text, words)
  local first, n = nil, 0
  for _, word in ipairs(words) do
    if text:find("%f[%w]" .. word .. "%f[%W]") then first, n = first or word, n + 1 end
  end
  return first, n
end

-- The modules that --recompute-modules can name, and words that add nothing.
local modules = { core_attn = "core_attn", moe_act = "moe_act", layernorm = "layernorm", layernorms = "layernorm", mla_up_proj = "mla_up_proj",
  mlp = "mlp", moe = "moe", shared_experts = "shared_experts" }
local plain = { recompute = true, recomputation = true, activation = true, activations = true, checkpoint = true, checkpointing = true,
  granularity = true, modules = true, module = true, default = true, only = true, ["and"] = true, of = true, the = true, mode = true, ac = true,
  policy = true, per = true, block = true, layer = true, layers = true }

-- Returns the tables' words for what a selective recomputation recomputes, "" if the text says nothing about it; nil: the text
-- has an unknown word.
local function selected(text, is_titan)
  text = text:gsub("attention core", "core_attn"):gsub("core attention", "core_attn"):gsub("%f[%w]attention%f[%W]", "core_attn")
  local every = text:match "every%s+(%d+)" or text:match "every%s+(%l+)%s+layer" or text:match "layer[%s:=]+(%d+)" or is_titan and text:match "^%W*(%d+)%W*$"
  if every == "other" or every == "second" then every = "2" end
  if tonumber(every) then return ("(layer, every %d)"):format(tonumber(every)) end
  local named = {}
  for word in text:gmatch "[%w_%.]+" do
    if word == "op" or word == "ops" then return "(op)" end
    if modules[word] then named[#named + 1] = modules[word] elseif not plain[word] then return nil end
  end
  return #named > 0 and ("(%s)"):format(table.concat(named, " ")) or ""
end

-- Turns a recomputation that begins with "selective" or "full" into the tables' words: "selective (op)", "selective: moe_act",
-- "full, block, 8 layers". The first of its parts that says something counts: the words, then each bracket.
local function detail(row)
  local lower = row.ac:lower()
  local kind, rest = lower:match "^(selective)(.*)$"
  if not kind then
    local n = lower:match "^full.-%f[%a]block%f[%A][^%d]-(%d+)" or lower:match "^full%D-(%d+)[%s%-_]*blocks?%f[%A]" or lower:match "^full.-(%d+).-%f[%a]block%f[%A]"
    if n and not lower:find "per block" then row.ac = ("full block %d"):format(tonumber(n)) end
    return
  end
  if rest:find "^ %(ratio" or rest:find "^ with empty list" then return end
  local titan = cells.has(row, "framework", "torchtitan") or cells.has(row, "framework", "torchtune") or cells.has(row, "framework", "vescale")
  local said = selected(rest:match "^[^%(%[;]*", titan)
  for part in rest:gmatch "%b()" do if said == "" then said = selected(part, titan) end end
  for part in rest:gmatch "%b[]" do if said == "" then said = selected(part, titan) end end
  if not said then refuse("ac", row.ac) end
  row.ac = "selective" .. said
end

-- A row may state Megatron's options instead (--recompute-granularity and others).
local function granularity(row)
  local cell = (row.recompute_granularity or ""):lower()
  if not cells.is_open(row.ac) or cell == "" then return end
  local n = (row.recompute_num_layers or ""):match "%d+"
  local some = cell == "full" and n and cells.has(row, "recompute_method", "^block")
  row.ac = some and "full block " .. n or cell == "selective" and ("selective(%s)"):format(row.recompute_modules or "") or cell
end

local function recomputation(row)
  local text = row.ac:match "^%s*(.-)%s*$"
  local lower, start = text:lower(), word_of(row.ac)
  local outside = unbracketed(text):gsub("with empty list = none", "")
  local found, n = among(lower, recomputes)
  local said, denied = select(2, among(outside, recomputes)), among(outside, denials)
  if yes[start] then -- words in brackets may say how: "yes (selective)"
    if n > 1 or found == "none" or denied then refuse("ac", row.ac) end
    row.ac = found or "full"
  elseif no[start] then
    if said > (start == "none" and 1 or 0) then refuse("ac", row.ac) end
    row.ac = "none"
  elseif lower:find "^full%f[%A]" or lower:find "^selective%f[%A]" or lower:find "^see recipe%f[%A]" then
    local word = lower:find "^see" and "see recipe" or start:match "^%a+"
    local after = lower:sub(#word + 1)
    if said > 1 or denied or no[after:match "^[%s:=%(%[]*([%w.]*)"] then refuse("ac", row.ac) end
    row.ac = word .. text:sub(#word + 1)
  else
    if n == 0 and (lower:find "^every layer" or lower:find "^all layers" or lower:find "^gradient.checkpointing") then found, n = "full", 1 end
    if n == 0 and lower:find "^default" then found, n = "", 1 end -- the default of the framework
    if n ~= 1 or among(lower, denials) then refuse("ac", row.ac) end
    row.ac = found
  end
end

-- Words for precisions that a plan can have. Lightning's "16-mixed" is fp16, "32-true" is fp32.
local precisions = { "bf16", "bfloat16", "fp16", "float16", "fp8", "float8", "wise", "e4m3", "mx", "fp4", "fp32", "float32", "tf32" }
local function precision(row)
  local text = row.precision:lower()
  if text:find "^16%-" or text:find "^half" then row.precision = "fp16" return end
  if text:find "^32%-" or text:find "^32$" then row.precision = "fp32" return end
  if text:find "float16" and not text:find "bfloat16" then row.precision = row.precision .. " fp16" end
  if text:find "^%s*mixed[%s_%-]*$" or text:find "^%s*mixed[%s_%-]*precision%s*$" then row.precision = "" return end
  for _, word in ipairs(precisions) do if text:find(word) then return end end
  refuse("precision", row.precision)
end

-- Reads the groups of HSDP, in which weights are sharded and which are replicated. If a row gives no group, the group
-- is PyTorch's default, a node (_init_utils.py).
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

-- Megatron's frameworks in other words: "Megatron Bridge", "NVIDIA Megatron-LM", "MCore".
local function framework(row)
  local name = row.framework:gsub("^[Nn][Vv][Ii][Dd][Ii][Aa]%s+([Mm]egatron)", "%1"):gsub("^[Mm][Cc]ore%f[%A]", "Megatron-Core")
  row.framework = name:gsub("^[Mm]egatron[%s_]*([BbLlCcDd][RrMmOoEe])", "Megatron-%1")
end

-- Turns the cells of a row into the tables' words.
function m.normalise(row)
  framework(row)
  for _, key in ipairs(counts) do
    local open = cells.is_open(row[key]) or row[key]:lower():find "^%s*no" or key == "global_batch_seqs" and row[key]:lower():find "per dp"
    local n = not open and whole(row, key)
    if n then row[key] = tostring(n) end
  end
  for _, key in ipairs { "moe_experts", "moe_topk" } do  -- cells that say that there are no experts become empty
    if cells.is_open(row[key]) or row[key] == "0" or cells.has(row, key, "^%s*no") then row[key] = "" end
  end
  if not cells.is_open(row.sp) and not switch(row, "sp", "1", "0") and not cells.has(row, "sp", "^ulysses") then refuse("sp", row.sp) end
  if not cells.is_open(row.compile) and not switch(row, "compile", "yes", "no") then
    if not cells.has(row, "compile", "compile") and not cells.has(row, "compile", "inductor") then refuse("compile", row.compile) end
    row.compile = "yes"
  end
  granularity(row)
  if not cells.is_open(row.ac) then recomputation(row) detail(row) end
  if not cells.is_open(row.precision) then precision(row) end
  if not cells.is_open(row.zero_stage) and cells.stage(row) == nil then refuse("zero_stage", row.zero_stage) end
  if not cells.is_open(row.n_gpus) and not cells.is_open(row.zero_stage) then hybrid(row) end
end

return m
