-- Cells of published training runs that say more than one thing: several degrees ("TP2 PP4 VPP5",
-- "4 (VPP 5)"), a degree and how it works ("4, interleaved 2", "2 (Ulysses)"), or a micro-batch and
-- how often it is accumulated ("1 x 8"). `spelling.lua` calls `split`, which moves each part to its
-- own column, before it reads a cell as a count.
local cells, synonyms, schedules = require "tandem.published.cells", require "tandem.published.synonyms", require "tandem.published.schedules"
local m = {}

-- Columns whose values another cell may give. Only the cells of these columns and of n_gpus may do
-- so.
local columns = { "tp", "pp", "vp", "cp", "ep", "etp", "micro_batch", "global_batch_seqs" }

-- Degrees that have no column: data ranks, and micro-batches that a rank accumulates.
local extra = { dp = "data", ga = "accumulated", gas = "accumulated", accum = "accumulated", accumulation = "accumulated" }

-- Returns the column that a name means. A name may mean two columns ("bs"); the column `own`, to
-- which the cell belongs, comes first.
local function column_of(name, own)
  if synonyms.is_short_name(own, name) then return own end
  if own == "pp" and name == "v" then return "vp" end
  for _, key in ipairs(columns) do if synonyms.is_short_name(key, name) then return key end end
  return extra[name]
end

-- Returns the degrees that a text of column `own` names ("tp2pp4", "TP=2, PP=4"), as a table by
-- column, and the text without them.
local function named(text, own)
  local found = {}
  local rest = text:gsub("%f[%a](%a+)%s*[=:]?%s*(%d+)%f[%D]", function(name, value)
    local key = column_of(name:lower(), own)
    if key and found[key] == nil then found[key] = value end
    return key and "" or nil
  end)
  return found, (rest:gsub("%([%s,;/&+%-]*%)", ""):gsub("[%s,;/&+%-]+$", ""))
end

-- Rewrites several degrees after the list of their names, or before it: "TP/PP/CP = 4/2/2" and
-- "4/2/2 (TP/PP/CP)" become "TP4 PP2 CP2".
local function unlisted(text, key)
  local names, values = text:match "^%s*(%a[%a%d/]+)[%s:=%(]+(%d+[%d/]+)%)?%s*$"
  if not names then values, names = text:match "^%s*(%d+[%d/]+)%s*%(?(%a[%a%d/]+)%)?%s*$" end
  if not names or not names:find "/" or not values:find "/" then return text:gsub("(%d)%s*[x*]%s*(%a%a)", "%1 %2") end
  local list, name = {}, names:gmatch "[^/]+"
  for value in values:gmatch "[^/]+" do list[#list + 1] = (name() or "?") .. value end
  if name() or list[#list]:find "?" then cells.refuse("%s does not have one degree for each name: %s", key, text) end
  return table.concat(list, " ")
end

local function has_other(found, key)
  for other in pairs(found) do if other ~= key then return true end end
  return false
end

-- Returns the product of the named degrees. A degree that the cell does not give comes from the row's column.
local function product(row, found, names)
  local n = 1
  for _, name in ipairs(names) do
    local value = found[name] or not cells.is_open(row[name]) and row[name] or 1
    if not tonumber(value) then cells.refuse("%s is not a number: %s", name, value) end
    n = n * tonumber(value)
  end
  return ("%d"):format(n)
end

-- Returns the value of the column to which the cell belongs, or nil if the cell does not give it.
-- It is the number next to the column's name, or the rest of the cell if that begins with a number
-- ("8 nodes"). A number of GPUs or a batch may be the product of the degrees in the cell: "DP2 TP2
-- PP4", "MBS1 x GA16 x DP8".
local function own_value(row, key, found, rest)
  local n, behind = rest:match "^%s*(%d+)(.*)$"
  local own = found[key] or n and (behind:find "%w" and rest or n)
  if key == "n_gpus" and found.data then
    local all = product(row, found, { "data", "tp", "pp", "cp" })
    if own and own:find "^%d+$" and own ~= all then cells.refuse("n_gpus is not the product of the degrees: %s", row[key]:sub(1, 60)) end
    return own or all
  end
  local total = key == "global_batch_seqs" and n and behind:find "^%s*%(" and not found.micro_batch
  if own and total and found.accumulated then row.must_agree = "1" end
  if own and (total or not (found.accumulated and key == "global_batch_seqs")) then return own end
  if key == "global_batch_seqs" and found.micro_batch and found.data and found.accumulated then
    return product({}, found, { "micro_batch", "data", "accumulated" })
  end
  return nil
end

local function degrees(row, key)
  local text = unlisted(row[key], key)
  if key == "n_gpus" then text = text:gsub("%d+%s*[Gg]i?[Bb]%f[%A]", " ") end -- removes the memory of a GPU: "80GB"
  local found, rest = named(text, key)
  if not has_other(found, key) then return end
  local own = own_value(row, key, found, rest)
  if not own then cells.refuse("%s is not known: %s", key, row[key]:sub(1, 60)) end
  row[key], found[key], found.data = own, nil, nil
  for other, value in pairs(found) do
    local said = tonumber(row[other] or "")
    if said and said ~= tonumber(value) then cells.refuse("%s and %s do not agree: %s, %s", key, other, text:sub(1, 40), row[other]) end
    if cells.is_open(row[other]) then row[other] = value end
  end
end

-- Returns the first number and the text after it, or nil if the text has no number.
local function first_number(text) return text:match "^%D-(%d+)%f[%D](.*)$" end

-- Reads a cell pp that also gives the chunks of a rank: "4, interleaved 2". If a row of torchtitan
-- gives no number, a rank has two chunks, as in torchtitan's looped schedules
-- (distributed/pipeline_parallel.py).
-- kind: source; torchtitan
local function stages(row)
  if cells.is_open(row.pp) then return end
  local text = cells.without_denied(row.pp:lower(), { "interleav%a*", "virtual%a*", "chunk%a*" })
  local n, rest = first_number((text:gsub("1f1b", ""):gsub("%f[%a]schedule%f[%A]", "")))
  if not n or not (rest:find "interleav" or rest:find "virtual" or rest:find "chunk" or row.pp:lower():find "1f1b") then return end
  row.pp = n
  if row.vp and row.vp ~= "" or rest:match "^%W*$" then return end
  if rest:find "micro" then cells.refuse("pp says more than stages and chunks: %s, %s", n, rest) end
  local chunks = rest:match "%d+" and rest:match "^%W*(.-)%W*$" or cells.has(row, "framework", "torchtitan") and "2" or nil
  if not chunks then cells.refuse("the chunks of an interleaved pipeline are not stated: pp = %s, %s", n, rest) end
  row.vp = chunks:find "layer" and chunks or first_number(chunks)
end

-- Reads a cell cp that also says how ranks share a sequence: "2 (Ulysses)", "4 p2p". In Ulysses,
-- which Megatron calls a2a, the ranks exchange tokens for heads.
local function sharing(row)
  if cells.is_open(row.cp) then return end
  row.cp = row.cp:gsub("^%s*([%a%d%-]*%a[%-%a]*)%s+(%d+)%s*$", function(how, n) return how:lower():find "^%d*cp?$" and how .. n or n .. " (" .. how .. ")" end)
  local text = cells.without_denied(row.cp:lower(), { "ulysses", "a2a", "all[%s%-]*to[%s%-]*all" })
  local n, rest = text:match "^%s*(%d+)([%s,;%(].*)$"
  if not n or rest:find "%d+%s*x" or rest:find "[x*]%s*%d" then return end
  local trades = (rest:find "ulysses" or rest:find "a2a" or rest:find "all[%s%-]*to[%s%-]*all") and not rest:find "p2p" and not rest:find "ring"
  -- torchtitan's alltoall passes keys and values around (context_parallel_rotate_method)
  if trades and cells.has(row, "framework", "^torchtitan") and not rest:find "ulysses" then row.cp = n return end
  if trades and tonumber(n) > 1 then
    if not cells.has(row, "framework", "megatron") and not cells.has(row, "framework", "nemo") then
      if cells.is_open(row.sp) then row.sp = "ulysses " .. n end
    elseif cells.is_open(row.cp_comm) then row.cp_comm = "a2a" end
  end
  if trades or rest:find "p2p" or rest:find "ring" or rest:find "gather" then row.cp = n end
end

-- Reads a cell such as "1 x 8": a micro-batch, and how often a rank accumulates it.
local function accumulated(row)
  if cells.is_open(row.micro_batch) then return end
  local text = row.micro_batch:lower():gsub("×", "x")
  local n, times, rest = text:match "^[%a%s=:%-]*(%d+)%s*x%s*(%d+)%s*(.*)$"
  if not n or rest ~= "" and not rest:find "acc" and not rest:find "^%(?ga" then return end
  if times == row.seq then cells.refuse("micro_batch is not known: %s may be samples x their length", row.micro_batch) end
  row.micro_batch, row.accumulated, row.must_agree = n, times, "1"
end

-- InternEvo's modes of tp. The mode isp gathers weights as ZeRO-3 does, and exchanges tokens for
-- heads. InternEvo shards its weights within a group (weight.size) and its states over more ranks
-- (zero1). Here both are sharded over all ranks.
-- kind: documented; InternEvo's configs/7B_isp_sft.py
local modes = { mtp = "0", msp = "1", fsp = "1" }
local function intern_mode(row)
  if not cells.has(row, "framework", "internevo") then return end
  for _, key in ipairs { "sp", "tp" } do
    local mode = (row[key] or ""):lower():match "%f[%a]([mfi][ts]p)%f[%A]"
    local n = (row[key] or ""):match "%d+" or (row.tp or ""):match "%d+"
    if mode == "isp" and n then
      if n ~= "1" then row.sp = "ulysses " .. n else row.sp = "0" end
      row.tp, row.zero_stage, row.dp_shard, row.dp_replicate = "1", "3", "", ""
      cells.note("weights and states are shared among all ranks, not among InternEvo's groups of weight and zero1")
      return
    elseif modes[mode or ""] then
      row.sp = modes[mode]
      if key == "tp" then row.tp = n end
      return
    end
  end
end

-- Reads a cell tp that also says whether there is sequence parallelism: "2 + SP", "TP2-SP", "2
-- (SP)". Also reads "2-way TP".
local function tensors(row)
  if cells.is_open(row.tp) then return end
  local name = "%f[%a]sp%f[%A]"
  if row.tp:lower():find(name) and cells.is_open(row.sp) then row.sp = cells.affirms(row.tp, name) and "1" or "0" end
  row.tp = row.tp:gsub("%s*[%(,]?%s*[sS][pP]%s*[:=]%s*[01]%s*%)?%s*$", ""):gsub("%s*[%+%-/,&]%s*[sS][pP]%s*$", ""):gsub("(%d)%-way%s+[tT][pP]%s*$", "%1")
end

local function expert_tensors(row)
  local text = (row.etp or ""):lower()
  if text:find "^%s*same" or text:find "^%s*=?%s*tp%s*$" then row.etp = row.tp or "1" end
  if text ~= "" and cells.flag(row, "etp") == false then row.etp = "1" end
end

-- Fills open degrees that the name of the framework or of the model gives: "Megatron-LM (TP=4, PP=2)", "gpt3_mcore_tp2_pp2".
-- Refuses a name that gives several: "TP 1-8", "TP=2 or 4".
local function named_elsewhere(row)
  for _, place in ipairs { "framework", "model" } do
    local text = (row[place] or ""):gsub("%d+%.%d[%d%.]*", " "):gsub("1[fF]1[bB]", " ")
    for _, key in ipairs { "tp", "pp", "cp", "ep", "etp" } do
      text = cells.without_denied(text, { "%f[%a]" .. key .. "%s*[=:]?%s*%d+" })
    end
    local found = named(text, "framework")
    for _, key in ipairs { "tp", "pp", "cp", "ep", "etp" } do
      if found[key] and tonumber(found[key]) <= 1024 and cells.is_open(row[key]) then
        local rest = text:lower():match("%f[%a]" .. key .. "%s*[=:]?%s*%d+(.*)$") or ""
        local more = rest:find "^%s*[%-/]%s*%d+%f[^%w]" or rest:find "^%s*–%s*%d" or rest:find "^%s*,%s*%d+%s*[,%)]" or rest:find "^%s*or%s+%d" or rest:find "^%s*to%s+%d"
        if more then
          cells.refuse("%s names several degrees of %s: %s", place, key, row[place]:sub(1, 60))
        end
        row[key] = found[key]
      end
    end
  end
end

function m.split(row)
  intern_mode(row)
  named_elsewhere(row)
  schedules.read(row)
  tensors(row)
  for _, key in ipairs(columns) do if not cells.is_open(row[key]) then degrees(row, key) end end
  if not cells.is_open(row.n_gpus) then degrees(row, "n_gpus") end
  stages(row)
  schedules.finish(row)
  sharing(row)
  accumulated(row)
  expert_tensors(row)
end

return m
