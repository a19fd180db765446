-- Rewrites the cells of a row in the words that the tables of published runs use. Sources write a
-- switch, a count, a ZeRO stage or a recomputation in many ways. A row with an unknown word is
-- refused, and the error names the word, so no row is silently misread.
local cells, synonyms, meshes = require "tandem.published.cells", require "tandem.published.synonyms", require "tandem.published.meshes"
local numbers, megatron_words = require "tandem.published.numbers", require "tandem.published.megatron_words"
local precisions_of = require "tandem.published.read.precisions"
local machines, remarks, names = require "tandem.published.read.machines", require "tandem.published.read.remarks", require "tandem.published.read.names"
local has_thousands, scaled, tokens = numbers.has_thousands, numbers.scaled, numbers.tokens
local m = {}

local function refuse(key, cell) cells.refuse("%s is not known: %s", key, cell:sub(1, 60)) end

-- ---- counts

local counts = { "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab", "moe_experts", "moe_topk", "n_gpus", "gpus_per_node",
  "tp", "pp", "vp", "cp", "ep", "dp_shard", "dp_replicate", "seq", "micro_batch", "global_batch_seqs" }  -- seq is before the batches, because a batch in tokens is divided by seq

-- A cell of one of these counts may give a number for each GPU, node or other unit instead of the
-- total: "8 per GPU", "2/node", "4 a GPU". `parts` are patterns of such words.
local wholes = { n_gpus = true, global_batch_seqs = true, n_layers = true, moe_experts = true }
local parts = { "/", "%f[%a]per%f[%A]", "%f[%a]each%f[%A]", "%f[%a]an? %a*gpu", "%f[%a]an? node" }
local large = { "^%s*[kmb]%f[%A]", "^%s*thousand", "^%s*million", "^%s*billion" }

local function finds(text, patterns)
  for _, pattern in ipairs(patterns) do if text:find(pattern) then return true end end
  return false
end

-- Returns a text in lower case, without the parts in brackets.
local function unbracketed(text) return (text:lower():gsub("%b()", " "):gsub("%b[]", " ")) end

-- Returns the whole number that a cell gives: "8,192", "64.0", "64 GPUs", "50257 (padded)", "8k".
-- For n_gpus, the cell may be a product of nodes and the GPUs of a node: "8x8", "8 nodes x 8".
-- `has_thousands` says when a comma separates thousands. Refused are other cells with several
-- numbers, because their meaning is not certain ("4-8", "4/8", "8,16", "4 or 8", "2x4"), and cells
-- that count something else ("4M tokens", "2 nodes"). Returns nil if the cell does not begin with a
-- number.
local function whole(row, key)
  local cell = row[key]
  local text = cell:match "^%s*(.-)%s*$":gsub("^(%d+),%s", "%1; ") -- in "4, using a schedule", the comma ends the number
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
  local after = unbracketed(rest)
  local other = after:find "%d" or key == "n_gpus" and synonyms.before_nodes(after) or key == "global_batch_seqs" and (after:find "%f[%a]tok" or rest:lower():find "[%(%[]%s*tok")
  if other or finds(after, large) or wholes[key] and finds(after, parts) then refuse(key, cell) end
  if unit ~= "" and key ~= "seq" and key ~= "global_batch_seqs" then refuse(key, cell) end
  return scaled(tonumber((digits:gsub(",", ""))), unit)
end

-- For a global batch that is given for one GPU ("2 per GPU"): returns it times the number of GPUs,
-- if every GPU has its own samples (tp = pp = cp = 1). Returns nil for any other cell.
local function completed(row, key)
  local text = row[key]:lower()
  if key == "global_batch_seqs" then
    local each, rest = text:match "^%s*(%d+)%s*(.*)$"
    local alone = cells.replica(row) == 1
    if each and alone and (rest:find "^%a*%s*per%s+gpu%s*$" or rest:find "^%a*%s*/%s*gpu%s*$" or rest:find "^%a*%s*an?%s+gpu%s*$" or rest:find "^%a*%s*per%s+device%s*$" or rest:find "^%a*%s*per%s+rank%s*$" or rest:find "^%a*%s*/%s*device%s*$") then
      return math.tointeger(tonumber(each) * cells.count(row, "n_gpus"))
    end
  end
  return nil
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

-- Words for recomputation. A cell begins with a switch ("yes") or with one of these words, or it
-- contains exactly one of them: "activation checkpointing (full)". A cell that contains two of
-- them, or denies one, is ambiguous and is refused: "none / full", "full: no".
local recomputes = { "full", "selective", "none", "see recipe" }
local denials = { "no", "not", "non", "off", "false", "without", "disabled", "never", "w/o" }

-- Returns the first of the words that a text in lower case contains, and the number of those that
-- it contains.
local function among(text, words)
  local first, n = nil, 0
  for _, word in ipairs(words) do
    if text:find("%f[%w]" .. word .. "%f[%W]") then first, n = first or word, n + 1 end
  end
  return first, n
end

-- modules: the names that a cell may use for the modules of --recompute-modules, and Megatron's
-- name of each. plain: words that may stand beside these names without changing the meaning.
local modules = { core_attn = "core_attn", moe_act = "moe_act", layernorm = "layernorm", layernorms = "layernorm", norm = "layernorm", norms = "layernorm", mla_up_proj = "mla_up_proj",
  mlp = "mlp", moe = "moe", shared_experts = "shared_experts", swiglu = "moe_act" }
local plain = { recompute = true, recomputation = true, activation = true, activations = true, checkpoint = true, checkpointing = true,
  granularity = true, modules = true, module = true, default = true, only = true, ["and"] = true, of = true, the = true, mode = true, ac = true,
  policy = true, per = true, block = true, layer = true, layers = true, option = true, with = true, sequence = true, parallel = true,
  parallelism = true, sp = true, flash = true, torchtitan = true, megatron = true, recomputed = true, recompute_modules = true, recompute_granularity = true }

-- Returns the parts of a block that a text says are recomputed, in the words of the tables:
-- "(core_attn)", "(op)", "(layer, every 2)". Returns "" if the text names none, and nil if it has
-- an unknown word. is_titan: true for torchtitan, where a bare number n means every n-th layer.
local function selected(text, is_titan)
  text = text:gsub("%f[%w]sdpa%f[%W]", "core_attn"):gsub("attention core", "core_attn"):gsub("core[ _]attention", "core_attn"):gsub("core attn", "core_attn"):gsub("%f[%w]attention%f[%W]", "core_attn"):gsub("%f[%w_]attn%f[^%w_]", "core_attn")
  local every = text:match "every%s+(%d+)" or text:match "every%s+(%l+)%s+layer" or text:match "layer[%s:=]+(%d+)" or text:match "option[%s:=\"']*(%d+)" or is_titan and text:match "^%W*(%d+)%W*$"
  if every == "other" or every == "second" then every = "2" end
  if tonumber(every) then return ("(layer, every %d)"):format(tonumber(every)) end
  local named = {}
  for word in text:gmatch "[%w_%.]+" do
    if word == "op" or word == "ops" then return "(op)" end
    if modules[word] then named[#named + 1] = modules[word] elseif not plain[word] then return nil end
  end
  return #named > 0 and ("(%s)"):format(table.concat(named, " ")) or ""
end

-- Rewrites a recomputation that begins with "selective" in the words of the tables:
-- "selective(op)", "selective(moe_act)". It reads the words before the first bracket, then the text
-- in each bracket, and takes the first text that names a part.
local function detail(row)
  local lower = row.ac:lower()
  local kind, rest = lower:match "^(selective)(.*)$"
  if not kind then return end
  if rest:find "^ %(ratio" or rest:find "^ with empty list" then return end
  local titan = cells.has(row, "framework", "torchtitan") or cells.has(row, "framework", "torchtune") or cells.has(row, "framework", "vescale")
  local said = selected(rest:match "^[^%(%[;]*", titan)
  for part in rest:gmatch "%b()" do if said == "" then said = selected(part, titan) end end
  for part in rest:gmatch "%b[]" do if said == "" then said = selected(part, titan) end end
  if not said then refuse("ac", row.ac) end
  row.ac = "selective" .. said
end

-- Fills an empty cell `ac` from the columns of Megatron's options: recompute_granularity, recompute_method,
-- recompute_num_layers and recompute_modules.
local function granularity(row)
  local cell = (row.recompute_granularity or ""):lower()
  if not cells.is_open(row.ac) or cell == "" then return end
  local n = (row.recompute_num_layers or ""):match "%d+"
  local some = cell == "full" and n and cells.has(row, "recompute_method", "^block")
  row.ac = some and "full block " .. n or cell == "selective" and ("selective(%s)"):format(row.recompute_modules or "") or cell
end

-- Recomputation policies of MaxText (remat_policy) and OLMo (ActivationCheckpointingStrategy).
-- After "keeps" follow the ops whose outputs are not recomputed. A longer name precedes the names
-- that it contains.
-- kind: source; MaxText, src/MaxText/layers/decoders.py (get_remat_policy); OLMo, olmo/model.py
local policies = {
  { "minimal_with_context", "keeps linear attention" }, { "minimal_flash", "keeps linear attention" }, { "minimal", "keeps linear" },
  { "save_dot_with_context_except_mlp", "keeps linear_q linear_kv linear_o attention" }, { "save_dot_except_mlp", "keeps linear_q linear_kv linear_o" },
  { "save_qkv_proj", "keeps linear_q linear_kv" }, { "qkv_proj_offloaded", "keeps linear_q linear_kv" }, { "save_out_proj", "keeps linear_o" },
  { "fine_grained", "keeps linear" }, { "whole_layer", "full" },
  -- jax.checkpoint_policies
  { "nothing_saveable", "full" }, { "everything_saveable", "none" }, { "dots_with_no_batch_dims_saveable", "keeps linear" }, { "dots_saveable", "keeps linear attention" },
}
local numbers = { one = 1, two = 2, three = 3, four = 4, eight = 8, half = 0.5, other = 2, second = 2, third = 3, fourth = 4, alternate = 2 }

-- Returns the fraction of the layers that a text says are recomputed: "0.4", "40 %", "one_in_two",
-- "every 2nd layer", "10 of 32 layers". Returns nil if the text gives none.
local function part_of(text, row)
  local ratio = tonumber(text:match "^%s*(0?%.%d+)%s*$") or tonumber(text:match "ratio[%s:=]*(0?%.%d+)")
  local percent = text:match "(%d+%.?%d*)%s*%%"
  if ratio or percent then return ratio or tonumber(percent) / 100 end
  local n, of = text:match "(%w+)[%s_%-]*in[%s_%-]+(%w+)"
  if not n then n, of = text:match "(%d+)%s*of%s*t?h?e?%s*(%d+)" end
  if not n then n, of = text:match "(%d+)%s*/%s*(%d+)" end
  n, of = tonumber(n) or numbers[n or ""], tonumber(of) or numbers[of or ""]
  if n and of and n <= of then return n / of end
  local every = text:match "every%s+(%w+)" or text:match "%f[%a]alternate%f[%A]" and "other"
  every = every and (numbers[every] or tonumber(every:match "^(%d+)"))
  if every then return 1 / every end
  if text:find "%f[%a]half%f[%A]" then return 0.5 end
  local some = tonumber(text:match "first%s+(%d+)" or text:match "last%s+(%d+)" or text:match "^%s*(%d+)%s+layers%s*$")
  return some and not cells.is_open(row.n_layers) and math.min(1, some / cells.count(row, "n_layers")) or nil
end

-- Reads a cell that gives a policy, a fraction of the layers, or an option with a value
-- ("gradient_checkpointing=False"), and rewrites it in the words that `recomputation` knows.
-- Returns true if nothing else of the cell must be read.
local function policy(row)
  local lower = row.ac:lower()
  local value = lower:match "^[%a_%-%s]*checkpoint[%a_%-%s]*[:=]%s*(%S.*)$" or lower:match "^[%a_%-%s]*recompute[%a_%-%s]*[:=]%s*(%S.*)$" or
    lower:match "^[%a_%-%s]*remat[%a_%-%s]*[:=]%s*(%S.*)$" or lower:match "^remat%s+(%S.*)$"
  if value and not lower:find "^full" and not lower:find "^selective" then row.ac, lower = value, value end
  for _, known in ipairs(policies) do
    if lower:find(known[1]) then
      row.ac = known[2]
      return true
    end
  end
  local bare = unbracketed(lower):match "^%s*(.-)%s*$"
  if bare:find "^%-*recompute[%s_%-]activations$" then row.ac = "selective(core_attn)" return true end -- Megatron's option
  local sac = bare:find "%f[%a]sac%f[%A]" and selected(lower:gsub("[%(%)%[%]]", " "):gsub("%f[%a]sac%f[%A]", " "):gsub("layer%-wise", " "), true)
  if bare:find "^per[%s_%-]op" or bare:find "^ops?$" or bare:find "^selective_op$" or bare:find "op%-level" then row.ac = "selective(op)" return true end
  if bare:find "%f[%a]sac%f[%A]" then row.ac = "selective" .. (sac and sac ~= "" and sac or "(op)") return true end
  -- modules without "selective": "core_attn", "recompute attention", "moe_act recompute"
  local is_module = bare:find "att" or bare:find "%f[%w_]moe_act%f[^%w_]" or bare:find "norms?%f[%A]" or bare:find "%f[%w_]mlp%f[^%w_]" or bare:find "mla_up_proj" or bare:find "%f[%w_]moe%f[^%w_]"
  local modules_of = not bare:find "^full" and not bare:find "^selective" and not among(bare, denials) and is_module and selected(bare)
  if modules_of and modules_of:find "^%([cmls]" then row.ac = "selective" .. modules_of return true end
  if not lower:find "^selective" and not lower:find "^none" then
    local method = synonyms.recomputed_layers(lower)
    if method then row.ac = method return true end
  end
  if select(2, among(lower, recomputes)) == 0 and not among(bare, denials) and not bare:find "%d" and not bare:find "budget" then
    for _, word in ipairs { "checkpoint", "recomput", "^gc$", "^gc on$", "^ac on$", "^with ac$", "^w/ ac$", "ckpt", "unsloth", "^all blocks", "^every block", "on every block", "partition_activations", "^uniform", "^remat", "^%-g$" } do
      if bare:find(word) then row.ac = "full" return true end
    end
  end
  if lower:find "^selective" or lower:find "^none" or lower:find "block" then return false end
  local part = part_of(lower, row)
  if part and part < 1 then row.ac = ("full part %g"):format(part) end
  return part ~= nil and part < 1
end

-- Rewrites a cell so that it begins with the kind of recomputation: "recompute full block 4"
-- becomes "full block 4", "AC: selective op" becomes "selective op", and "FullAC" becomes "full".
local function kind_first(row)
  local lower = row.ac:lower():match "^%s*(.-)%s*$"
  local rest = lower:match "^recompu%a*[%s:=_%-]+(full.*)$" or lower:match "^recompu%a*[%s:=_%-]+(selective.*)$" or lower:match "^ac[%s:=]+(full.*)$" or
    lower:match "^ac[%s:=]+(selective.*)$"
  local named = lower:match "^recompu%a*%s*[%(%[]([%a_,%s%+]+)[%)%]]$"
  if named and not named:find "full" and not named:find "layer%f[%A]" and not named:find "block" then rest = ("selective (%s)"):format(named) end
  if lower:find "^every[_%s]layer$" or lower:find "^all$" or lower:find "^all layers$" then rest = "full" end
  if rest then row.ac = rest end
  row.ac = row.ac:gsub("^(%s*%d+)%s*%(block%)%s*$", "block %1"):gsub("^%s*block%s+recompu%a*[%s:=]+(%d+)%s*$", "block %1"):gsub("^%s*recompute_modules%s*[:=]%s*", ""):gsub("^%s*%[([%a_,%s%-]+)%]%s*$", "%1")
  row.ac = row.ac:gsub("[cC]ore%-[aA]tt", "core_att"):gsub("[mM][oO][eE][%s%-][aA]ct%f[%A]", "moe_act"):gsub("[mM][lL][aA][%s_%-][uU]p[%s_%-]?[pP]roj", "mla_up_proj"):gsub("[sS]hared[%s%-][eE]xperts", "shared_experts")
  row.ac = row.ac:gsub("^%s*%-*checkpoint%-activations.-num%-layers[%s=]*(%d+)%s*$", "uniform %1") -- Megatron-LM's options until 2022
  row.ac = row.ac:gsub("^%s*[Ff]ullAC%f[%A]", "full"):gsub("^(%s*[Ss]elective)_+", "%1 ")
end

local function recomputation(row)
  kind_first(row)
  if row.ac:lower():find "^full%s+block%s+0%s*$" then row.ac = "none" end -- "full block 0" recomputes no layer
  -- removes parts that add nothing: "selective, not full", "true; use_reentrant: false"
  local denied = select(2, cells.without_denied(row.ac, { "recomput%a*", "checkpoint%a*", "ckpt", "remat%a*", "^%s*ac", "^%s*gc" }))
  if denied and select(2, among(row.ac:lower(), recomputes)) == 0 then
    row.ac = "none"
    return
  end
  row.ac = row.ac:gsub("[,;%(]%s*not%s+%a+%s*%)?%s*$", ""):gsub("[,;%(]%s*no%s+%a*%s*offload%a*%s*%)?%s*$", ""):gsub(",?%s*non%-reentrant", ""):gsub("[,;%(]?%s*[%a_]*reentrant%s*[:=]%s*%a+%)?", "")
  row.ac = row.ac:gsub("^%s*[Ss]el%s*$", "selective"):gsub("^%s*[Ss]elected%s+", "selective "):gsub("feed_forward", "mlp")
  if policy(row) then return end
  local text = row.ac:match "^%s*(.-)%s*$"
  local lower, start = text:lower(), word_of(row.ac)
  -- these cells only deny recomputation: "without AC", "w/o AC", "AC off", "not used"
  if lower:find "^without" or lower:find "^w/o" or lower:find "^not%s+%a+$" and not lower:find "full" and not lower:find "selective" or lower:find "^%a+%s+off$" and not lower:find "full" then row.ac = "none" return end
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
    if n == 0 and lower:find "^default" then found, n = "", 1 end -- an empty cell takes the framework's default
    if n ~= 1 or among(lower, denials) then refuse("ac", row.ac) end
    row.ac = found
  end
end

-- Words for the number types that a plan can compute in. In Lightning, "16-mixed" means fp16, and "32-true"
-- means fp32.
local precisions = { "bf16", "bfloat16", "fp16", "float16", "fp8", "float8", "wise", "e4m3", "mx", "fp4", "fp32", "float32", "tf32" }
local sub_channels = { "%f[%a]sc%f[%A]", "sub%-?%s?channels?", "fine%-?%s?grained" }
local function precision(row)
  row.precision = synonyms.without_denied(row.precision:gsub("^[Tt]orch%.", ""):gsub("([Rr]ow)%-[Ww]ise", "%1wise"):gsub("^([Ff]l?o?a?t?[Pp]?8)[%s_%-]+[Rr]ow%f[%A]", "%1 rowwise"))
  local text = row.precision:lower()
  if cells.is_float8(row) and (text:find "grouped[%s_%-]*[gm]%a*[%s_%-]+only" or text:find "experts?%s+only" or text:find "only%s+%a*%s*experts") then
    cells.note("16-bit products stand for those of experts: %s", row.precision)
    row.precision = "bf16"
    return
  end
  if cells.is_float8(row) and text:find "%f[%a]only%f[%A]" and (text:find "attention" or text:find "mlp" or text:find "ffn") then refuse("precision", row.precision) end
  local last, first = precisions_of.wide_layers(text)
  if (last or first) and text:find "bf?l?o?a?t?16" then
    if last and cells.is_open(row.last_bf16) then row.last_bf16 = last end
    if first and cells.is_open(row.first_bf16) then row.first_bf16 = first end
  end
  if text:find "int[48]" or text:find "w8a8" or text:find "^%s*bf16%s*/%s*fp8%s*$" or text:find "^%s*fp8%s*/%s*bf16%s*$" then refuse("precision", row.precision) end
  if text:find "brain%s*float" and not text:find "fp8" then row.precision = "bf16" return end
  local half = text:find "^16%-" or text:find "^16%s*$" or text:find "^half"
  if half and not text:find "bf16" and not text:find "bfloat" then row.precision = text:find "true" and "fp16-true" or "fp16" return end
  if text:find "^32%-" or text:find "^32$" or text:find "^single" or text:find "^full%s*precision" then row.precision = "fp32" return end
  if text:find "^8%-bit" then row.precision = "fp8 " .. text end
  local blocks_of_32 = cells.is_float8(row) and (text:find "block%a*[%s_%-]*32%f[%D]" or text:find "1%s*x%s*32%f[%D]")
  if (text:find "microscal" or blocks_of_32) and not text:find "mx" and not text:find "fp4" then row.precision = "mxfp8 " .. text end
  -- NeMo's and Megatron-Bridge's recipes call blocks of 128 numbers sub-channels: FP8-SC
  local affirmed = cells.without_denied(text, sub_channels)
  if cells.is_float8(row) and not text:find "mx" and (affirmed:find(sub_channels[1]) or affirmed:find(sub_channels[2]) or affirmed:find(sub_channels[3])) then
    row.precision = row.precision .. " blockwise"
  end
  if text:find "float16" and not text:find "bfloat16" then row.precision = row.precision .. " fp16" end
  if text:find "^%s*mixed[%s_%-]*$" or text:find "^%s*mixed[%s_%-]*precision%s*$" then row.precision = "" return end
  for _, word in ipairs(precisions) do if row.precision:lower():find(word) then return end end
  refuse("precision", row.precision)
end

-- Reads whether PyTorch compiles the model. The cell may name a mode of torch.compile, or the part
-- that is compiled.
local function compiled(row)
  if switch(row, "compile", "yes", "no") then return end
  local text, denied = cells.without_denied(row.compile:lower():gsub("%-no%-cudagraphs", ""), { "compile%a*", "inductor", "dynamo", "max%-autotune", "xla", "jit" })
  if denied or text:find "^%s*not%f[%A]" or text:find "^%s*without" or text:find "^%s*w/o" then row.compile = "no" return end
  -- these fuse kernels, but do not compile the model
  if text:find "nvfuser" or text:find "torchscript" or text:find "^%s*cuda%s*graph" or text:find "^%s*fused%s+kernels" then row.compile = "no" return end
  for _, word in ipairs { "compile", "inductor", "dynamo", "^xla", "max%-autotune", "reduce%-overhead", "^default", "^jit", "^regional", "^full", "^model", "^block", "^loss", "^layer", "^transformer%s*%-?_?block", "^transformer%s*%-?_?layer", "^components.*model", "^per%f[%A]" } do
    if text:find(word) then row.compile = "yes" return end
  end
  refuse("compile", row.compile)
end

-- Reads the cell for sequence parallelism, `sp`. It may mean Megatron's, which works beside tp ("1"
-- or "0"), or DeepSpeed's Ulysses with a number of ranks ("ulysses 8"). If the framework has only
-- Ulysses, the number alone is enough.
local function sequences(row)
  row.sp = row.sp:match "^%s*[%a_%s]*[pP]arallel[%a]*%s*[:=]%s*(%a.*)$" or row.sp
  if select(2, cells.without_denied(row.sp, { "%f[%a]sp%f[%A]", "seq%a*[%s_%-]*parallel%a*", "ulysses" })) then row.sp = "0" return end
  if switch(row, "sp", "1", "0") then return end
  local text = row.sp:lower()
  local n, only = text:match "%d+", cells.has(row, "framework", "xtuner") or cells.has(row, "framework", "deepspeed") and not cells.has(row, "framework", "megatron")
  if text:find "ulysses" or text:find "all[%s_%-]*to[%s_%-]*all" then row.sp = "ulysses " .. (n or "1") return end
  if n and only and text:find "^%s*%a*[%s=]*%d+%s*$" then row.sp = "ulysses " .. n return end
  if n and not text:find "ulysses" and not text:find "ring" and text:find "^%s*[%a%s%-_]*[%s=:]+%d+%s*$" and text:find "seq" then
    if only then row.sp = "ulysses " .. n return end
    if n == row.tp and tonumber(n) > 1 then row.sp = "1" return end
  end
  if text:find "^%s*same%s+as%s+tp" or text:find "^%s*%d+%s*$" and n == row.tp and tonumber(n) > 1 then row.sp = "1" return end -- in Megatron, the number of sequence-parallel ranks is tp
  if text:find "^%s*not%f[%A]" or text:find "^%s*without" or text:find "^%s*w/o" or text:find "^%s*all[%s_%-]*reduce" then row.sp = "0" return end
  -- a ring is context parallelism
  if n and text:find "ring" and (cells.is_open(row.cp) or cells.count(row, "cp", 1) == tonumber(n)) then row.sp, row.cp = "0", n return end
  if text:find "reduce[%s_%-]*scatter" then row.sp = "1" return end -- nanotron's mode of tp
  if not n and (text:find "^%s*w/%s*sp" or text:find "^%s*sp%s*$" or text:find "tp[%s%+%-/]*sp" or text:find "^%s*seq%a*[%s_%-]*parallel" or text:find "^%s*with%s+tp" or text:find "sequence[%s_%-]*parallel" or text:find "^%s*megatron") then row.sp = "1" return end
  refuse("sp", row.sp)
end

-- The stage of frameworks that have only one besides plain data parallelism, and what they call "SDP":
-- Galvatron (arXiv 2211.13878) and SageMaker's library shard weights, FairScale's ShardedDDP gradients.
local only = { { "galvatron", "3" }, { "sagemaker", "3" }, { "%f[%a]smp%f[%A]", "3" }, { "fairscale", "2" }, { "fsdp", "3" }, { "torchtitan", "3" }, { "nanotron", "1" }, { "internevo", "1" },
  { "^megatron%-lm", "1" }, { "^megatron%-core", "1" }, { "^megatron%-bridge", "1" }, { "^nemo", "1" } }

-- Rewrites a cell that says only that states are sharded ("yes", "ZeRO: on", "SDP"), if the framework leaves no choice.
local function only_stage(row)
  local text = row.zero_stage:lower():gsub("^%s*zero[%a_%s]*[:=]%s*", ""):match "^%s*(.-)%s*$"
  if not yes[text] or text:find "^%d" then
    if text ~= "sdp" and not text:find "^sharded%s+data[%s_%-]*parallel%a*$" then return end
  end
  for _, known in ipairs(only) do
    if cells.has(row, "framework", known[1]) then
      cells.note("zero_stage says only %s; stage %s of %s is planned", row.zero_stage, known[2], row.framework)
      row.zero_stage = known[2]
      return
    end
  end
end

-- Fills the two degrees of HSDP if the row gives one of them: the number of ranks that shard the
-- weights (dp_shard), and the number of such groups (dp_replicate). If the row gives no dp_shard, a
-- group is a node, which is PyTorch's default (_init_utils.py).
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

-- Rewrites a number of parameters in billions: "8B", "350M", "8,030,000,000".
local function billions(row)
  local digits, unit = row.params_b:match "^%s*~?(%d[%d,]*%.?%d*)%s*([kKmMbBtT]?)"
  local n = digits and tonumber((digits:gsub(",", "")))
  if not n then return end
  local word = unit:lower()
  row.params_b = ("%.10g"):format(n * (word == "m" and 1e-3 or word == "t" and 1e3 or word == "" and n > 1e5 and 1e-9 or 1))
end

-- Reads the number of ranks that share states or weights, if the cell zero_stage gives it: "1
-- (zero1 size 8)", "ZeRO-1 over 8 ranks", "HSDP (8 x 4)", "ZeRO-3 within a node". InternEvo's
-- `zero1` is this number (-1: all ranks; 1: no ZeRO).
local function shared_group(row)
  local text = row.zero_stage:lower()
  local is_hybrid = text:find "hsdp" or text:find "hybrid"
  local shard, replicate
  if is_hybrid then
    shard, replicate = text:match "%D(%d+)%s*[x*]%s*(%d+)"
    -- PyTorch shards within a node by default, so in "4x8" and "8x4" the size of a node is the
    -- sharded group's
    if shard and replicate == (cells.is_open(row.gpus_per_node) and "8" or row.gpus_per_node) then shard, replicate = replicate, shard end
    if not shard then shard, replicate = text:match "shard%a*[%s=:]*(%d+)", text:match "replica%a*[%s=:]*(%d+)" end
  end
  if shard or is_hybrid and replicate then
    if cells.is_open(row.dp_shard) and shard then row.dp_shard = shard end
    if cells.is_open(row.dp_replicate) and replicate then row.dp_replicate = replicate end
    return
  end
  local intern = cells.has(row, "framework", "internevo") and (text:match "zero1[%s:=({size]*(%-?%d+)" or text:match "^%s*1%D-size[%s:=]*(%-?%d+)")
  if intern == "1" then row.zero_stage = "0" return end
  if intern then row.zero_stage = "1" end
  local size = intern or text:match "fsdp2?%s*=%s*(%d+)" or text:match "size[%s:=]*(%d+)" or text:match "groups?%s*of%s*(%d+)" or text:match "over%s+(%d+)%s+%a" or text:match "across%s+(%d+)%s+%a" or
    text:match "(%d+)%s+ranks" or text:match "mics%D-(%d+)" or text:match "hpz%D-(%d+)"
  if not size and (text:find "within an? node" or text:find "intra%-node" or text:find "per node") then size = row.gpus_per_node end
  if tonumber(size) and tonumber(size) > 1 and cells.is_open(row.dp_shard) then row.dp_shard = size end
end

-- Removes words before or after a number: "TP=2", "pp4", "mbs 1", "top-2", "2-way". After a number
-- of GPUs, the GPU's name may follow: "16x H100".
local function bare_count(row, key)
  local text = row[key]:lower():gsub("^%s+", "")
  local ways, name = text:match "^(%d+)%-way%s*([a-z]*)%s*$"
  local n = text:match "^[a-z]+[%s=:%-]*(%d+)%s*$" or (name == "" or name == key) and ways or key == "pp" and text:match "^(%d+)%-stages?%s*$"
  if n and (not text:find "^%a" or text:find("^" .. key) or text:find "^[tpcve]p" or text:find "^[mg]bs" or text:find "^top") then row[key] = n end
  if key == "moe_topk" and text:match "^(%d+)%s+of%s+%d+%s*$" then row[key] = text:match "^%d+" end
  if key == "n_gpus" then row[key] = row[key]:gsub("^(%s*%d+%s*x%s*%d+)%s*x?%s+[GHAVBLM][BHI]?%d%d%d?%d?%a*[%w%-%s]*$", "%1"):gsub("^(%s*%d+)%s*x%s*[GHAVBLM][BHI]?%d%d%d?%d?%a*[%w%-%s]*$", "%1"):gsub("^(%s*%d+)%s*x?%s+[GHAVBLM][BHI]?%d%d%d?%d?%a*[%w%-%s]*$", "%1") end
  if key == "gpus_per_node" then row[key] = row[key]:gsub("^(%s*%d+)%s*x?%s*[GHABLMV][BHI]?%d%d%d?%d?[%a%d%-%s]*$", "%1"):gsub("^(%s*%d+)%-[Gg][Pp][Uu].*$", "%1") end
  if key == "dp_shard" and (text:find "^%-1" or text:find "^auto" or text:find "^all" or text:find "^full") then row[key] = "" end
  if key == "dp_shard" and text:find "^node%s*$" then row[key] = row.gpus_per_node or "" end
  if key == "dp_shard" or key == "dp_replicate" then row[key] = row[key]:gsub("^%s*%a+[%s=:]+(%d+)%s*$", "%1"):gsub("^%s*[xX]%s*(%d+)%s*$", "%1"):gsub("^%s*(%d+)%s*[xX]%s*$", "%1") end
end

-- Rewrites the cells of a row in the words of the tables.
function m.normalise(row)
  synonyms.marks(row)
  remarks.remove(row)
  names.normalise(row)
  megatron_words.normalise(row)
  if not cells.is_open(row.attention_backend) then synonyms.attention(row) end
  machines.fill(row)
  if not cells.is_open(row.gpu) then machines.gpu(row) end
  meshes.split(row)
  if not cells.is_open(row.sp) then sequences(row) end -- before the batch, whose reading depends on the ranks that share a sequence
  if cells.has(row, "micro_batch", "^%s*auto%a*%s*$") then
    cells.note("the framework chose the micro-batch; one sequence is assumed")
    row.micro_batch = "1"
  end
  for _, key in ipairs { "tp", "pp", "vp", "cp", "ep", "dp_shard", "dp_replicate" } do -- the framework chose, and the row does not say what
    if cells.has(row, key, "^%s*auto%a*%s*$") or cells.has(row, key, "^%s*searched") then row[key] = "" end
  end
  for _, key in ipairs(counts) do
    if not cells.is_open(row[key]) then synonyms.count(row, key) bare_count(row, key) end
    local open = cells.is_open(row[key]) or row[key]:lower():find "^%s*no" or key == "global_batch_seqs" and row[key]:lower():find "per dp"
    local n = not open and (tokens(row, key) or completed(row, key) or whole(row, key))
    if n then row[key] = tostring(n) end
  end
  for _, key in ipairs { "etp", "mtp_layers", "head_dim", "moe_ffn" } do
    if not cells.is_open(row[key]) then
      synonyms.count(row, key)
      if (key == "head_dim" or key == "moe_ffn") and row[key]:find "^%s*%d+%s*[xX]" then refuse(key, row[key]) end -- "4x": a multiple of a size that is not known here
    end
  end
  if not cells.is_open(row.params_b) then billions(row) end
  for _, key in ipairs { "moe_experts", "moe_topk" } do  -- cells that say that there are no experts become empty
    if cells.is_open(row[key]) or row[key] == "0" or cells.has(row, key, "^%s*no") or cells.flag(row, key) == false then row[key] = "" end
  end
  if not cells.is_open(row.compile) then compiled(row) end
  granularity(row)
  row.offloads_activations = cells.offloads_activations(row) or nil -- the next line shortens the cell `ac`
  if not cells.is_open(row.ac) then recomputation(row) detail(row) end
  precisions_of.take_flag(row)
  if not cells.is_open(row.precision) then precision(row) end
  if cells.has(row, "framework", "internevo") then row.zero_stage = (row.zero_stage or ""):gsub("^%s*(%-?%d+)%s*%(zero1%s*%)", "zero1 %1") end
  if not cells.is_open(row.zero_stage) then only_stage(row) end
  if not cells.is_open(row.zero_stage) and cells.stage(row) == nil then refuse("zero_stage", row.zero_stage) end
  if not cells.is_open(row.zero_stage) then shared_group(row) end
  if not cells.is_open(row.n_gpus) and not cells.is_open(row.zero_stage) then hybrid(row) end
end

return m
