-- Reads further spellings of cells: counts of nodes, names of sizes, kernels of attention, cloud
-- machines. `spelling.lua` calls these functions before it reads a cell as a count or a switch.
local cells, catalog, gpus = require "tandem.published.cells", require "tandem.published.catalog", require "tandem.gpus"
local machines_of, numbers = require "tandem.published.read.machines", require "tandem.published.numbers"
local m = {}

-- The words of each count:
-- names: words that may precede the number ("GQA 2", "bs=1", "seq_len 4096", "hidden_size=1024")
-- units: words that may follow it without a blank ("4L", "8x", "1/GPU")
-- stems: parts of the names of options ("ici_tensor_parallelism=8", "sequence_len: 8192")
local count_words = {
  n_layers = { names = { "l", "layers", "num_layers", "n_layers", "num_hidden_layers" }, units = { "l" } },
  d_model = { names = { "h", "d", "hidden", "hidden_size", "d_model", "dim", "width" }, units = { "d", "h" } },
  n_heads = { names = { "h", "a", "heads", "num_heads", "n_heads", "num_attention_heads" }, units = { "q", "h" } },
  n_kv_heads = { names = { "gqa", "mqa", "kv", "kv_heads", "groups", "num_query_groups", "num_key_value_heads" } },
  d_ff = { names = { "ffn", "ff", "d_ff", "ffn_hidden_size", "intermediate_size" } },
  vocab = { names = { "v", "vocab", "vocab_size" } },
  head_dim = { names = { "d", "dh", "hd", "head_dim" } },
  moe_experts = { names = { "e", "experts", "num_experts" }, units = { "e" } },
  moe_topk = { names = { "k", "top_k", "topk", "top" } },
  mtp_layers = { names = { "mtp", "depth" } },
  moe_ffn = { names = { "i", "ffn", "moe_ffn", "moe_ffn_hidden_size", "moe_intermediate_size" } },
  seq = { names = { "s", "seq", "len", "ctx", "context", "seq_len", "seqlen", "seq_length", "max", "max_seq_len", "sequence_length", "context_length", "sequence_len",
    "cutoff_len", "max_length", "block_size" }, stems = { "seq", "context", "ctx", "_len", "max_length", "block_size" } },
  micro_batch = { names = { "mbs", "b", "bs", "mb", "local_batch", "local_batch_size", "batch_size", "micro_batch", "micro_batch_size",
    "per_device_train_batch_size", "per_device_batch_size", "device_train_microbatch_size", "train_micro_batch_size_per_gpu" },
    units = { "/gpu", "/device", "/rank" }, stems = { "micro", "per_device", "local_batch", "mbs" } },
  global_batch_seqs = { names = { "gbs", "b", "bs", "gb", "batch", "batch_of", "batch_size", "global_batch", "global_batch_size" },
    stems = { "global", "gbs", "total_batch" } },
  n_gpus = { names = { "x", "n", "gpus", "world_size" }, units = { "x" }, stems = { "world_size", "gpus", "devices" } },
  gpus_per_node = { units = { "x", "/node", "gpus/node", "gpu/node" } },
  tp = { names = { "tp", "t", "tp_size", "tensor_parallel", "tensor_model_parallel_size", "tensor_parallel_degree" }, units = { "x" }, stems = { "tensor" } },
  pp = { names = { "pp", "p", "pp_size", "pipeline_model_parallel_size" }, stems = { "pipeline" } },
  vp = { names = { "vp", "vpp", "v", "interleaved", "chunks" }, units = { "x" }, stems = { "virtual", "interleave", "chunk" } },
  cp = { names = { "cp", "c", "ring", "p2p", "cp_size", "context_parallel_size" }, stems = { "context", "ring" } },
  ep = { names = { "ep", "e", "ep_size", "expert_parallel", "expert_model_parallel_size" }, stems = { "expert" } },
  etp = { names = { "etp" } },
}

-- If the name of an option contains one of these words, the option sets another count.
local not_in = { "layer", "vocab", "dcn" }

-- Returns true if a name of several words belongs to an option that sets the count `key`.
local function names_option(key, name)
  for _, word in ipairs(not_in) do if name:find(word) then return false end end
  for _, word in ipairs(count_words[key] and count_words[key].stems or {}) do if name:find(word) then return true end end
  return false
end

local function has_word(list, word)
  for _, known in ipairs(list or {}) do if known == word then return true end end
  return false
end

local function words_of(key) return count_words[key] or {} end

-- Returns true if `name`, a short name such as "vpp", means the degree or batch `key`.
function m.is_short_name(key, name) return #name > 1 and #name < 4 and has_word(words_of(key).names, name) end

-- Words for a node.
local machines = { "nodes?", "machines?", "hosts?", "servers?", "instances?", "trays?", "dgx", "hgx", "boxes", "vms?" }

-- Returns the text before the first word for a node, or nil if there is no such word.
function m.before_nodes(text)
  local first
  for _, word in ipairs(machines) do
    local at = text:find("%f[%w]" .. word .. "%f[%W]")
    if at and (not first or at < first) then first = at end
  end
  return first and text:sub(1, first - 1)
end

-- Trays of GB200 and GB300 have four GPUs.
local function has_trays(row) return (row.gpu or ""):find "GB[23]00" end

local is_node = { [4] = true, [8] = true, [16] = true }

-- Returns the text without "single" or "one" before the number of GPUs of a node ("Single 8xH100",
-- "one 8-GPU node"). Returns "1" if "GPU" or the name of a GPU follows "single".
local function single(text)
  local rest = text:match "^%s*[Ss]ingle%s+(.*)$" or text:match "^%s*[Oo]ne%s+(.*)$"
  if not rest or rest:find "^%d" then return rest and (rest:match "^(%d+)%s*[Gg][Pp][Uu]s?%s+%a+%s*$" or rest) or text end
  if m.before_nodes(rest:lower()) or rest:find "%dx" or rest:find "x%s*%d" then return text end
  return (rest:lower():find "^gpu%f[%A]" or gpus.find(rest)) and "1" or text
end

-- Rewrites the cell n_gpus so that it can be read as a count: without a plural s ("H100s"), without a hyphen
-- ("8-GPU"), with thousands in digits ("2k"), and without the nodes after a total ("64 GPUs / 8 nodes").
local function devices(row)
  local text = row.n_gpus:gsub("(%f[%w][GHABLMV][BHI]?%d%d%d?%d?)s%f[%W]", "%1"):gsub("(%d)x([GHABLMV][BHI]?%d)", "%1 x %2"):gsub("(%d)%s*%-?%s*([Gg][Pp][Uu])", "%1 %2")
  text = text:gsub("^(%s*%d%d?%d?),(%d%d%d%s+[GHABLMV][BHI]?%d)", "%1%2")
  local lower, thousands = text:lower(), text:match "^%s*(%d%d?%d?)%s*[kK]%f[%W]"
  local all, nodes = lower:match "^%s*(%d+)%s*%a*%s*/%s*(%d+)%s*nodes?%s*$"
  if thousands then text = text:gsub("^%s*%d+%s*[kK]", ("%d"):format(1024 * tonumber(thousands))) end
  text = single(text)
  if all and tonumber(all) > tonumber(nodes) and tonumber(all) % tonumber(nodes) == 0 then text = all end
  row.n_gpus = text
end

-- Returns the number of all GPUs if a cell counts nodes ("8 machines", "8 nodes (64 GPUs)", "8
-- servers of 8", "8 DGX H100 nodes"), or nil if it does not. A number of GPUs in brackets counts
-- the GPUs of all nodes, unless the cell says that it is for each node.
local function gpus_of_nodes(row)
  local text = row.n_gpus:lower():gsub("^%s*one%f[%A]", "1"):gsub("^%s*a%s+single%f[%A]", "1"):gsub("^%s*single%f[%A]", "1")
  local each_node, of_each = text:match "^%s*(%d+)%s*n%s*(%d+)%s*g%s*$" -- "2n8g"
  if each_node then return tonumber(each_node) * tonumber(of_each) end
  -- all GPUs and their nodes: "16 GPUs, 2 nodes"
  local all, on = text:match "^%s*(%d+)%s*%a*gpus?[%s,]+%a*%s*(%d+)%s+nodes?%s*$"
  if all and not cells.is_open(row.gpus_per_node) and tonumber(all) == tonumber(on) * cells.count(row, "gpus_per_node") then return tonumber(all) end
  local nodes, rest = text:match "^%s*(%d+)%s*x?%s*(%a.*)$"
  if not nodes then return nil end
  for _, known in ipairs(machines_of.clouds) do -- a cloud's machine is a node
    local same = cells.is_open(row.gpu) or gpus.find(known[2]) == gpus.find(row.gpu)
    if same and rest:find("^" .. known[1]) and machines_of.is_whole(row, rest) then rest = "nodes" .. rest:gsub("^[%w%.%-_]+", "") break end
  end
  local words = rest:gsub("%f[%w][ghablmvr][bhi]?%d%d%d?%d?%f[%W]", " "):gsub("%d+%s*g[i]?b", " ") -- removes the name and the memory of a GPU, which contain numbers
  local before = m.before_nodes(words)
  if not before or before:find "[%d(/]" then return nil end
  for _, word in ipairs { "gpu", "%f[%a]per%f[%A]", "%f[%a]an?%f[%A]", "each", "%f[%a]in%f[%A]", "%f[%a]on%f[%A]" } do if before:find(word) then return nil end end
  local number, per_node = tonumber(words:match "%d+"), not cells.is_open(row.gpus_per_node) and cells.count(row, "gpus_per_node") or nil
  local n = tonumber(nodes)
  if select(2, words:gsub("%d+", "")) > 1 then return nil end
  local is_total = number and (words:find "%f[%a]total" or words:find "in all%f[%A]" or words:find "altogether" or words:find "overall")
  if is_total and number % n == 0 and (not per_node or number == n * per_node) then return number end
  if is_total then cells.refuse("n_gpus and its nodes do not agree: %s", row.n_gpus) end
  if not number then return per_node and n * per_node or words:find "^trays?%f[%A]" and has_trays(row) and 4 * n or nil end
  local each = words:find "each" or words:find "per" or words:find "/%s*%a" or words:find "%f[%a]of%s+%d" or words:find "x%s*%d" or words:find "with%s+%d" or words:find "%*%s*%d"
  if each or number == per_node and number < 2 * n then return n * number end
  if per_node then return number == n * per_node and number or number == per_node and n * number or cells.refuse("n_gpus and gpus_per_node do not agree: %s, %s", row.n_gpus, row.gpus_per_node) end
  -- In "8 nodes (64 GPUs)" the number counts all GPUs, but in "3 nodes/8 GPUs" those of a node: a
  -- node has 4, 8 or 16 GPUs.
  local is_all, is_each = number % n == 0, is_node[number]
  if is_all and is_each and n > 1 then cells.refuse("n_gpus counts the GPUs of all nodes or of each: %s", row.n_gpus) end
  return is_all and number or is_each and n * number or nil
end

-- Returns the vocabulary for a rounded number of n thousand ("128k"): the vocabulary of the row's
-- model if it rounds to the same number, otherwise 1000 n.
local function thousands(row, n)
  local own = catalog.vocabulary(row.model or "", "")
  for _, unit in ipairs { 1000, 1024 } do
    if own and (own // unit == n or (own + unit // 2) // unit == n) then return own end
  end
  cells.note("the vocabulary %s is rounded; %d is assumed", row.vocab, 1000 * n)
  return 1000 * n
end

-- Degrees of parallelism. Their cells may say that an axis is not used: "off", "disabled".
local degrees = { tp = true, pp = true, vp = true, cp = true, ep = true }
local function is_off(text)
  local word = text:match "^[%a/]*"
  return word == "off" or word == "w/o" or text == "n" or word == "disabled" or word == "false" or word == "without" or word == "unused" or text:find "^not used" ~= nil
end

-- Returns the number of chunks of a rank if the cell gives the layers of a chunk
-- (--num-layers-per-virtual-pipeline-stage), otherwise nil.
function m.chunks_of_layers(row, text)
  local bare = text:gsub("%b()", " ")
  local each = bare:find "layer" and tonumber(bare:match "%d+")
  if not each or each == 0 or bare:find "%d%D+%d" then return nil end
  local known = cells.is_open(row.n_layers) and catalog.find(row.model or "")
  if cells.is_open(row.n_layers) and not known then cells.refuse("vp is not known: %s", text) end
  local stage = (known and known.l or cells.count(row, "n_layers")) / cells.count(row, "pp", 1)
  return stage % each == 0 and tostring(math.tointeger(stage // each)) or nil
end

-- Returns true if a batch is given as sequences of the row's own length: "128 x 8192 tokens", "128
-- seqs of 8k".
function m.of_length(row, text)
  local between, length, unit = text:match "^%d+(.-)(%d+)%s*(k?)%s*t?o?k?e?n?s?%s*$"
  local plain = between and (between:find "^%s*x%s*$" or between:find "^%s*seq%a*%s+of%s+$" or between:find "^%s*samples%s+of%s+$")
  return plain and tonumber(length) * (unit == "k" and 1024 or 1) == tonumber(row.seq)
end

-- Reads a length of a sequence that is a power of two, written in rounded thousands ("8.2k",
-- "65.5k") or in Ki.
function m.length(row)
  local text = row.seq:lower():match "^%s*(.-)%s*$"
  row.seq = row.seq:gsub("(%d)%s*Ki%f[%A]", "%1k")
  local digits = text:match "^(%d+%.%d)%s*k%s*t?o?k?e?n?s?$"
  for power = 10, 20 do
    if digits and ("%.1f"):format(2 ^ power / 1000) == digits then row.seq = ("%d"):format(1 << power) return end
  end
end

-- Reads a vocabulary. If the cell also gives the padded number, that number counts, because the
-- padded rows exist: "128256 -> 128512", "50257 (padded to 50304)".
function m.vocabulary(row)
  local text = row.vocab:lower():gsub("→", "->"):gsub(",", ""):match "^%s*~?%s*(.-)%s*$"
  local padded = text:match "^%d+%s*%->%s*(%d+)%s*$" or text:match "pad%a*%s*t?o?%s*(%d%d%d%d+)%f[^%d]"
  local own = tonumber(text:match "^%d+")
  if padded and own and (tonumber(padded) < own or tonumber(padded) >= 2 * own) then padded = nil end
  if padded then row.vocab, row.padded = padded, "1" return end
  local plain = text:match "^(%d+)%s*%(?%s*padded%s+to%s+a?%s*multiples?%s+of%s+128%s*[x*]%s*tp%s*%)?$"
  if plain then row.vocab = plain return end
  if text:find "padded" then row.padded = "1" end
  if text:find "^%d+%s*k" then row.vocab = text end
end

-- Reads a cell that gives more than the number of heads: "32Q/8KV" and "32/8" (query heads and KV
-- heads), "32 x 128" (heads and their width). Returns true if the cell does so.
local function split_heads(row, text)
  local n, other = text:match "^(%d+)%s*q?%a*%s*/%s*(%d+)%s*%a*$"
  local key = n and "n_kv_heads" or "head_dim"
  if not n then
    n, other = text:match "^(%d+)%s*[%a]*%s*[,;%(]+%s*(%d+)%s*kv[%s_%-]*%a*%s*%)?$"
    key = n and "n_kv_heads" or key
  end
  if not n then n, other = text:match "^(%d+)%s*%a*%s*x%s*(%d+)%s*[%a]*$" end
  if not n then return false end
  if not cells.is_open(row[key]) and row[key] ~= other then cells.refuse("n_heads and %s do not agree: %s, %s", key, row.n_heads, row[key]) end
  row.n_heads, row[key] = n, other
  return true
end

-- Marks that mean yes or no, and separators of thousands other than a comma. A mark counts only if
-- it is the whole cell, and a separator only between digits.
local marks = { ["✓"] = "yes", ["✔"] = "yes", ["☑"] = "yes", ["✅"] = "yes", ["✗"] = "no", ["✘"] = "no", ["❌"] = "no", ["☐"] = "no" }
local spaces = { "\u{00A0}", "\u{2009}", "\u{202F}" }

-- Replaces marks in all cells by words, and removes separators: "✓" becomes "yes", "12 345" and
-- "12'345" become "12345".
function m.marks(row)
  for key, cell in pairs(row) do
    if type(cell) == "string" then
      local text, counts_cards = cell, key == "interconnect" or key == "gpu" -- "8 200 Gb/s" means eight cards
      for _, space in ipairs(spaces) do text = text:gsub(space, " ") end
      text = text:gsub("(%d)['’](%d%d%d)%f[%D]", "%1%2")
      local groups, rest = text:match "^%s*(%d%d?%d?[ %d]+)(.*)$"
      if groups and not counts_cards and not groups:find "%d%d%d%d" and groups:find " %d%d%d" and (groups .. " "):gsub(" %d%d%d%f[%D]", ""):find "^%d%d?%d?%s*$" and (groups:find " $" or not rest:find "^[%.%w]") then
        text = groups:gsub(" ", "") .. (groups:find " $" and " " or "") .. rest
      end
      text = marks[text:gsub("\u{FE0F}", ""):match "^%s*(.-)%s*$"] or text
      if text ~= cell then row[key] = text end
    end
  end
end

-- Reads a batch that counts something else than sequences: micro-batches of the only data rank ("96 microbatches"), sequences of a
-- data rank ("16/DP rank"), or a product ("16 x 8", "2/GPU x 16 GPUs").
local function batch(row)
  local text = row.global_batch_seqs:lower():match "^%s*(.-)%s*$"
  local n = text:match "^(%d+)%s*micro[%s%-]*batch%a*$"
  if n and not cells.is_open(row.n_gpus) and not cells.is_open(row.micro_batch) and cells.count(row, "n_gpus") == cells.replica(row) then
    row.global_batch_seqs = ("%d"):format(tonumber(n) * cells.count(row, "micro_batch"))
    return
  end
  n = text:match "^(%d+)%s*%a*%s*/%s*dp%f[%A][%s%a]*$" or text:match "^(%d+)%s*%a*%s*per%s+dp%f[%A][%s%a]*$" or text:match "^(%d+)%s*%a*%s*per%s+data[%s%-]*parallel%s+%a+$" or
    text:match "^(%d+)%s*%a*%s*per%s+replica$" or text:match "^(%d+)%s*%a*%s*/%s*replica$"
  if n then row.global_batch_seqs = n .. " per DP" return end
  local first, second = text:gsub("×", "x"):gsub("(%d),(%d%d%d)", "%1%2"):match "tok%a*%s*%((%d+)%s*x%s*(%d+)[%s%a]*%)$"
  if first and (first == row.seq or second == row.seq) then row.global_batch_seqs = first == row.seq and second or first return end
  if cells.is_open(row.seq) then return end -- a factor may be the length
  local plain = text:gsub("/%s*gpu", ""):gsub("/%s*device", ""):gsub("gpus?", ""):gsub("×", "x"):gsub("%*", "x"):gsub("%s+", "")
  if not plain:find "^%d+x%d+$" and not plain:find "^%d+x%d+x%d+$" then return end
  local product, on = 1, text:match "x%s*(%d+)%s*gpus?%s*$"
  if on and not cells.is_open(row.n_gpus) and tonumber(on) ~= tonumber(row.n_gpus) then cells.refuse("global_batch_seqs and n_gpus do not agree: %s, %s", text, row.n_gpus) end
  for factor in plain:gmatch "%d+" do
    if factor == row.seq then return end -- sequences and their length
    if tonumber(factor) >= 1024 then cells.refuse("global_batch_seqs may be sequences x another length: %s", text) end
    product = product * tonumber(factor)
  end
  row.global_batch_seqs = ("%d"):format(product)
end

-- Rewrites a count in the words that `spelling.lua` knows.
function m.count(row, key)
  row[key] = row[key]:gsub("×", "x")
  if key == "vocab" then m.vocabulary(row) end
  if key == "seq" then m.length(row) end
  if row[key]:find "^%s*~%s*%d[%d,]*%s*$" then row[key] = row[key]:gsub("~", "") cells.note("%s is rounded: ~%s", key, row[key]) end
  row[key] = row[key]:gsub("(%d)%-tokens?%s*$", "%1"):gsub("(%d)%-[dD]%s*$", "%1"):gsub("([/%s])iter%a*%s*$", "%1step")
  if key == "d_model" or key == "d_ff" or key == "moe_ffn" then
    local known = catalog.find(row.model or "")
    numbers.width(row, key, known and (key == "d_model" and known.d or key == "d_ff" and known.ff or known.me))
  end
  if key == "global_batch_seqs" then batch(row) end
  if key == "global_batch_seqs" and row[key]:lower():find "^%s*%d+%s*micro" then cells.refuse("global_batch_seqs counts micro-batches: %s", row[key]) end
  if key == "micro_batch" then row[key] = row[key]:gsub("^(%a[%a%s_=:]*%d+)%s*/%s*[gGdDrR]%a+%s*$", "%1") end
  local text = row[key]:lower():gsub("^%s+", ""):gsub("%s+$", "")
  local n_shared = (key == "moe_experts" or key == "moe_topk") and tonumber(text:match "[%+%(,]%s*(%d+)%s*shared")
  if n_shared and not cells.is_open(row.moe_ffn) then m.count(row, "moe_ffn") end
  if n_shared and cells.is_open(row.moe_shared_ffn) and tonumber(row.moe_ffn or "") then row.moe_shared_ffn = ("%d"):format(n_shared * tonumber(row.moe_ffn)) end
  if text:find "^2%s*%^%s*%d" or text:find "^2%s*%*%*%s*%d" then row[key] = text:gsub("^2%s*[%^*]+%s*(%d+)", function(n) return ("%d"):format(1 << tonumber(n)) end) return end
  if key == "n_gpus" then
    devices(row)
    local n = gpus_of_nodes(row)
    if n then row[key] = ("%d"):format(n) return end
  elseif key == "n_heads" and split_heads(row, text) then return
  elseif key == "n_layers" and text:find "^%d+%s*[%+%(]+%s*%d+%s*mtp" then
    local n, further = text:match "^(%d+)%D+(%d+)"
    row[key] = n
    if cells.is_open(row.mtp_layers) then row.mtp_layers = further end
    return
  elseif key == "n_kv_heads" and text:find "^mla%s*$" then row[key], row.needs_mla = "", cells.is_open(row.mla) or nil return
  elseif key == "n_kv_heads" and (text:find "^gqa%s*%d+%s*:%s*1$" or text:find "^%d+%s*:%s*1$") then row[key] = ("%d"):format(cells.count(row, "n_heads") // tonumber(text:match "%d+")) return
  elseif key == "n_kv_heads" and (text:find "^mha%s*$" or text:find "^same" or text:find "^=%s*n?_?heads" or text:find "^no%s+gqa") then row[key] = row.n_heads or "" return
  elseif key == "n_kv_heads" and text:find "^mqa%s*$" then row[key] = "1" return
  elseif key == "d_ff" or key == "moe_ffn" then
    local times = tonumber(text:match "^(%d%.?%d*)%s*[xhd*]%s*d?_?[mh]?[%a_]*$")
    local wide = times and math.tointeger(times * cells.count(row, "d_model"))
    if wide then row[key] = tostring(wide) return end
  elseif key == "d_model" and text:find "^%d+k$" then row[key] = ("%d"):format(1024 * tonumber(text:match "%d+")) return
  elseif key == "vocab" and text:find "^%d+%s*k%f[%A]%D*$" then
    row.vocab = tostring(math.tointeger(thousands(row, tonumber(text:match "^%d+"))))
    return
  elseif key == "vp" and text:find "^1f1b" then row[key] = "1" return
  elseif key == "vp" and m.chunks_of_layers(row, text) then row[key] = m.chunks_of_layers(row, text) return
  elseif degrees[key] and is_off(text) then row[key] = "1" return
  elseif key == "global_batch_seqs" and text:find "^%d[%d,]*%s*%a*%s*/%s*step%s*$" and not text:find "tok" then row[key] = text:match "^%d[%d,]*" return
  elseif (key == "global_batch_seqs" or key == "micro_batch") and m.of_length(row, text) then row[key] = text:match "^%d+" return
  elseif key == "seq" and text:find "^%d+[%d,]*%s*k?,%s*%a+$" then row[key] = text:match "^%d+[%d,]*%s*k?" return
  elseif key == "global_batch_seqs" and text:find "tok[%a]*%s*%(%d[%d,]*%s*seq" then row[key] = text:match "%((%d[%d,]*)%s*seq" return
  elseif key == "moe_topk" and (text:find "^%d+%s*/%s*%d+$" or text:find "^%d+%s*%+%s*%d+%s*shared") then row[key] = text:match "^%d+" return
  elseif key == "moe_experts" and text:find "^%d+%s*x%s*%d+%.?%d*b$" then row[key] = text:match "^%d+" return
  elseif key == "moe_experts" then
    local routed = text:match "^(%d+)%s*%a*%s*%+%s*%d+%s*shared"
    if routed then row[key] = routed return end
  end
  local name, n, rest = text:match "^([%a_%s]-)[%s_]*[:=(%-]?%s*(%d[%d,]*k?)%)?(.*)$"
  name = name and name:gsub("%s+", "_")
  local known = name and name ~= "" and (has_word(words_of(key).names, name) or name == key or text:find "^[%a_%s]+[:=]" and names_option(key, name))
  if known and not rest:find "%d" then row[key] = n .. rest:gsub("^%a+", "") return end
  n, rest = text:match "^(%d+)%s*([%a/]+)$"
  if n and has_word(words_of(key).units, rest) then row[key] = n return end
  n, rest = text:match "^(%d+)%s+(k)%f[%A]"
  if n and (key == "seq" or key == "global_batch_seqs") then row[key] = n .. rest end
end

-- Returns one of Megatron's two methods of full recomputation, in the words of `spelling.lua`, or
-- nil if the text names neither. "block" recomputes the stated number of layers of each part of a
-- pipeline: "recompute method block, 2 layers", "block 2", "full recompute 2 layers". "uniform"
-- recomputes all layers, in groups of the stated number.
function m.recomputed_layers(text)
  if text:find "except" or text:find "all but" then cells.refuse("ac is not known: %s", text:sub(1, 40)) end
  local n = text:match "layers?[%s:=]+(%d+)" or not text:find "%f[%a]of%f[%A]" and not text:find "every" and text:match "(%d+)[%s%-_]*layers?%f[%A]"
  local groups = text:find "layers? per checkpoint" or text:find "layers? per segment" or text:find "layers? per group"
  if groups or text:find "%f[%a]uniform%f[%A]" then
    n = tonumber(n or text:match "uniform%D-(%d+)")
    if n and n > 1 then cells.note("layers are recomputed in groups of %d; they are planned as recomputed one by one", n) end
    return "full"
  end
  local each = text:find "per block" or text:find "every block" or text:find "each block" or text:find "all blocks"
  if text:find "%f[%a]blocks?%f[%A]" and not each then
    local begins = text:find "^block" or text:find "^full" or text:find "method"
    n = begins and (text:match "%f[%a]blocks?%f[%A]%D-(%d+)" or text:match "^full%D-(%d+)") or n
    return n and (tonumber(n) > 0 and ("full block %d"):format(tonumber(n)) or "none") or nil
  end
  local first = text:match "^recompu%a*%s+(%d+)%s+layers%s*$"
  if first then return tonumber(first) > 0 and ("full block %d"):format(tonumber(first)) or "none" end
  return text:find "^full" and tonumber(n or 1) > 1 and ("full block %d"):format(tonumber(n)) or nil
end

-- Reads the kernel of attention. A cell that names no known kernel leaves the choice to the
-- framework.
function m.attention(row)
  local whole = row.attention_backend:lower()
  local text, off = cells.without_denied(whole, { "flash[%s_%-]*att%a*[%s_%-]*%d?", "flash[%s_%-]*%d?", "%f[%a]fa[_%-]?%d" })
  off = off and not text:find "flash" and not text:find "%f[%a]fa[_%-]?%d"
  if whole:find "flash_attn=0" or whole:find "nvte_flash" and off then row.attention_backend = "fused" return end
  if whole:find "fused_attn=0" then row.attention_backend = "flash" return end
  text = cells.without_denied(text, { "fused", "cudnn", "triton", "xformers", "eager", "math", "%f[%d]%d%f[%D]" })
  row.attention_backend = text
  if off and (text:find "fused" or text:find "cudnn" or text:find "triton" or text:find "xformers" or text:find "efficient") then return end
  for _, word in ipairs { "%f[%a]math", "eager", "naive", "vanilla", "standard", "^none", "^baddbmm" } do
    if off or text:find(word) then row.attention_backend = "unfused" return end
  end
  if text:find "^fa%s*$" then row.attention_backend = "flash" end
end

-- Returns true if a text says that the weights of a frozen model have 4 bits. (The library
-- bitsandbytes also has optimizers with 8 bits.)
function m.names_four_bits(text)
  local lower = cells.without_denied(text:lower(), { "q?lora", "bitsandbytes", "%f[%a]bnb%f[%A]", "gptq", "%f[%w]nf4%f[%W]", "%f[%w]awq%f[%W]", "load_in_4bit" })
  for _, word in ipairs { "qlora", "gptq", "%f[%w]nf4%f[%W]", "%f[%w]awq%f[%W]", "4%-?bit base", "base in 4 bits", "load_in_4bit" } do
    if lower:find(word) then return true end
  end
  return (lower:find "bitsandbytes" or lower:find "%f[%a]bnb%f[%A]") ~= nil and not lower:find "8[%s_%-]?bit"
end

-- Returns a text without the number types that it denies: "bf16 (no fp8)", "bf16 (fp8 off)".
function m.without_denied(text)
  local names = { "mxfp8", "nvfp4", "fp8", "float8", "fp4", "tf32", "8%-bit" }
  local kept = cells.without_denied(text, names)
  for _, name in ipairs(names) do
    -- removes 8-bit types of numbers that are only sent or stored, while products have 16 bits
    local moves = text:lower():find "^%s*bf?l?o?a?t?16" and { "dispatch", "all%-gather", "comm%a*", "kv" } or {}
    for _, word in ipairs(moves) do
      local from, to = kept:lower():find("%f[%w]" .. name .. "%s+" .. word)
      if from then kept = kept:sub(1, from - 1) .. kept:sub(to + 1) end
    end
  end
  return kept
end

-- Returns the rank whose memory the row states: "most" (the rank with the most), "first" or "last".
-- Returns nil if the row does not say; the framework's log then decides. The memory of a process
-- comes from a tool that sees all ranks.
function m.reporting_rank(row)
  local text = (row.peak_mem_kind or ""):lower()
  if text:find "max[%a]* over%s+%a*%s*ranks" or text:find "max[%a]* over%s+%a*%s*gpus" or text:find "max[%a]* of all" then return "most" end
  if text:find "last rank" or text:find "last stage" then return "last" end
  if text:find "%f[%a]rank[%s%-]*0" or text:find "first rank" or text:find "first stage" then return "first" end
  return (text:find "^process" or text:find "process total") and "most" or nil
end

return m
