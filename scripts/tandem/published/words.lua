-- Further words for cells of published training runs: counts of nodes, names of sizes, kernels of attention, cloud machines.
-- `spelling.lua` calls these functions before it reads a cell as a count or a switch.
local cells, catalog = require "tandem.published.cells", require "tandem.published.catalog"
local m = {}

-- Names of sizes and degrees that may stand before a number: "GQA 2", "bs=1", "seq_len 4096", "hidden_size=1024".
local names = {
  n_layers = { "l", "layers", "num_layers", "n_layers", "num_hidden_layers" }, d_model = { "h", "d", "hidden", "hidden_size", "d_model", "dim", "width" },
  n_heads = { "h", "heads", "num_heads", "n_heads", "num_attention_heads" }, n_kv_heads = { "gqa", "mqa", "kv", "kv_heads", "groups", "num_query_groups", "num_key_value_heads" },
  d_ff = { "ffn", "ff", "d_ff", "ffn_hidden_size", "intermediate_size" }, vocab = { "v", "vocab", "vocab_size" },
  seq = { "s", "seq", "ctx", "context", "seq_len", "seqlen", "seq_length", "max_seq_len", "sequence_length", "context_length", "sequence_len", "cutoff_len", "max_length",
    "block_size" },
  micro_batch = { "b", "bs", "mb", "mbs", "local_batch", "local_batch_size", "batch_size", "micro_batch_size", "per_device_train_batch_size", "per_device_batch_size",
    "device_train_microbatch_size", "train_micro_batch_size_per_gpu" },
  global_batch_seqs = { "b", "gbs", "bs", "gb", "batch", "batch_of", "batch_size", "global_batch", "global_batch_size" },
  moe_experts = { "e", "experts", "num_experts" }, moe_topk = { "k", "top_k", "topk", "top" }, etp = { "etp" }, mtp_layers = { "mtp" },
  head_dim = { "d", "head_dim" }, vp = { "vp", "vpp", "v", "interleaved", "chunks" }, n_gpus = { "x", "n", "gpus", "world_size" },
  tp = { "t", "tp_size", "tensor_parallel", "tensor_model_parallel_size", "tensor_parallel_degree" }, pp = { "p", "pp_size", "pipeline_model_parallel_size" },
  cp = { "ring", "p2p", "cp_size", "context_parallel_size" }, ep = { "ep_size", "expert_model_parallel_size" },
}

-- Units that may follow a number without a blank: "4L", "8x", "8E", "1/GPU".
local units = { n_layers = { "l" }, d_model = { "d", "h" }, n_heads = { "q", "h" }, moe_experts = { "e" }, n_gpus = { "x" }, tp = { "x" },
  gpus_per_node = { "x", "/node", "gpus/node", "gpu/node" }, micro_batch = { "/gpu", "/device", "/rank" } }

-- Words that the name of an option has, by the count that the option sets: "ici_tensor_parallelism=8", "sequence_len: 8192". A name
-- with a word of `not_in` sets another count.
local stems = { tp = { "tensor" }, pp = { "pipeline" }, cp = { "context", "ring" }, ep = { "expert" }, vp = { "virtual", "interleave", "chunk" },
  seq = { "seq", "context", "ctx", "_len", "max_length", "block_size" }, micro_batch = { "micro", "per_device", "local_batch", "mbs" },
  global_batch_seqs = { "global", "gbs", "total_batch" }, n_gpus = { "world_size", "gpus", "devices" } }
local not_in = { "layer", "vocab", "dcn" }

local function names_option(key, name)
  for _, word in ipairs(not_in) do if name:find(word) then return false end end
  for _, word in ipairs(stems[key] or {}) do if name:find(word) then return true end end
  return false
end

local function has_word(list, word)
  for _, known in ipairs(list or {}) do if known == word then return true end end
  return false
end

-- Returns the number of GPUs of a cell that counts nodes ("8 machines", "8 nodes (64 GPUs)", "8
-- servers of 8", "8 DGX H100 nodes"); nil: it counts none. A number of GPUs in brackets counts the
-- GPUs of all nodes, unless the cell says that it counts those of each node.
local machines = { "nodes?", "machines?", "hosts?", "servers?", "instances?", "dgx", "hgx", "boxes", "vms?" }

-- Returns the words up to a word for nodes; nil: the text has none.
function m.before_nodes(text)
  local first
  for _, word in ipairs(machines) do
    local at = text:find("%f[%w]" .. word .. "%f[%W]")
    if at and (not first or at < first) then first = at end
  end
  return first and text:sub(1, first - 1)
end

local function gpus_of_nodes(row)
  local text = row.n_gpus:lower()
  local nodes, rest = text:match "^%s*(%d+)%s*x?%s*(%a.*)$"
  if not nodes then return nil end
  local words = rest:gsub("%f[%w][ghablmvr][bhi]?%d%d%d?%d?%f[%W]", " "):gsub("%d+%s*g[i]?b", " ") -- the GPU's own name and memory
  local before = m.before_nodes(words)
  if not before or before:find "[%d(/]" then return nil end
  for _, word in ipairs { "gpu", "%f[%a]per%f[%A]", "%f[%a]an?%f[%A]", "each", "%f[%a]in%f[%A]", "%f[%a]on%f[%A]" } do if before:find(word) then return nil end end
  local number, per_node = tonumber(words:match "%d+"), not cells.is_open(row.gpus_per_node) and cells.count(row, "gpus_per_node") or nil
  local n = tonumber(nodes)
  if select(2, words:gsub("%d+", "")) > 1 then return nil end
  if not number then return per_node and n * per_node end
  local each = words:find "each" or words:find "per" or words:find "/" or words:find "%f[%a]of%s+%d" or words:find "x%s*%d" or words:find "with%s+%d" or words:find "%*%s*%d"
  if each or number == per_node and number < 2 * n then return n * number end
  if per_node and number == n * per_node or not per_node and number % n == 0 and number > n then return number end
  return per_node == number and n * number or nil
end

-- A vocabulary in thousands ("128k") is a rounded number. The vocabulary of the row's model counts if it rounds to the
-- same number; otherwise thousands are assumed.
local function thousands(row, n)
  local own = catalog.vocabulary(row.model or "", "")
  for _, unit in ipairs { 1000, 1024 } do
    if own and (own // unit == n or (own + unit // 2) // unit == n) then return own end
  end
  cells.note("the vocabulary %s is rounded; %d is assumed", row.vocab, 1000 * n)
  return 1000 * n
end

-- Degrees of parallelism. A cell may say that an axis is not used: "off", "disabled".
local degrees = { tp = true, pp = true, vp = true, cp = true, ep = true }
local function is_off(text)
  local word = text:match "^[%a/]*"
  return word == "off" or word == "disabled" or word == "false" or word == "without" or word == "unused" or text:find "^not used" ~= nil
end

-- Returns the chunks of a rank if the cell gives the layers of a chunk (--num-layers-per-virtual-pipeline-stage); nil: it does not.
function m.chunks_of_layers(row, text)
  local bare = text:gsub("%b()", " ")
  local each = bare:find "layer" and tonumber(bare:match "%d+")
  if not each or each == 0 or cells.is_open(row.n_layers) or bare:find "%d%D+%d" then return nil end
  local stage = cells.count(row, "n_layers") / cells.count(row, "pp", 1)
  return stage % each == 0 and tostring(math.tointeger(stage // each)) or nil
end

-- Writes a count in the words that `spelling.lua` knows.
function m.count(row, key)
  row[key] = row[key]:gsub("×", "x")
  local text = row[key]:lower():gsub("^%s+", ""):gsub("%s+$", "")
  if key == "n_gpus" then
    local n = gpus_of_nodes(row)
    if n then row[key] = ("%d"):format(n) return end
  elseif key == "n_kv_heads" and (text:find "^mha%s*$" or text:find "^same" or text:find "^=%s*n_heads") then row[key] = row.n_heads or "" return
  elseif key == "n_kv_heads" and text:find "^mqa%s*$" then row[key] = "1" return
  elseif key == "d_ff" then
    local times = tonumber(text:match "^(%d)%s*[xh*]%s*d?_?[mh]?[%a_]*$")
    if times then row[key] = tostring(times * cells.count(row, "d_model")) return end
  elseif key == "vocab" and text:find "^%d+%s*k%f[%A]%D*$" then
    row.vocab = tostring(math.tointeger(thousands(row, tonumber(text:match "^%d+"))))
    return
  elseif key == "vp" and text:find "^1f1b" then row[key] = "1" return
  elseif key == "vp" and m.chunks_of_layers(row, text) then row[key] = m.chunks_of_layers(row, text) return
  elseif degrees[key] and is_off(text) then row[key] = "1" return
  elseif key == "global_batch_seqs" and text:find "^%d[%d,]*%s*%a*%s*/%s*step%s*$" and not text:find "tok" then row[key] = text:match "^%d[%d,]*" return
  elseif key == "global_batch_seqs" and text:find "^%d+%s*x%s*%d+%s*tokens?%s*$" and text:match "x%s*(%d+)" == row.seq then row[key] = text:match "^%d+" return
  elseif key == "seq" and text:find "^%d+[%d,]*%s*k?,%s*%a+$" then row[key] = text:match "^%d+[%d,]*%s*k?" return
  elseif key == "global_batch_seqs" and text:find "tok[%a]*%s*%(%d[%d,]*%s*seq" then row[key] = text:match "%((%d[%d,]*)%s*seq" return
  elseif key == "moe_topk" and text:find "^%d+%s*/%s*%d+$" then row[key] = text:match "^%d+" return
  elseif key == "moe_experts" then
    local routed, shared = text:match "^(%d+)%s*%a*%s*%+%s*(%d+)%s*shared"
    if routed then
      row[key] = routed
      if cells.is_open(row.moe_shared_ffn) and not cells.is_open(row.moe_ffn) then row.moe_shared_ffn = tostring(tonumber(shared) * cells.count(row, "moe_ffn")) end
      return
    end
  end
  local name, n, rest = text:match "^([%a_%s]-)[%s_]*[:=(%-]?%s*(%d[%d,]*k?)%)?(.*)$"
  name = name and name:gsub("%s+", "_")
  local known = name and name ~= "" and (has_word(names[key], name) or name == key or text:find "^[%a_%s]+[:=]" and names_option(key, name))
  if known and not rest:find "%d" then row[key] = n .. rest:gsub("^%a+", "") return end
  n, rest = text:match "^(%d+)%s*([%a/]+)$"
  if n and has_word(units[key], rest) then row[key] = n return end
  n, rest = text:match "^(%d+)%s+(k)%f[%A]"
  if n and (key == "seq" or key == "global_batch_seqs") then row[key] = n .. rest end
end

-- Returns one of Megatron's two methods of full recomputation, in the words of `spelling.lua`; nil: the
-- text names neither. "block" recomputes the stated number of layers of each part of a pipeline:
-- "recompute method block, 2 layers", "block 2", "full recompute 2 layers". "uniform" recomputes all
-- layers, in groups of the stated number.
function m.recomputed_layers(text)
  if text:find "except" or text:find "all but" then cells.refuse("ac is not known: %s", text:sub(1, 40)) end
  local n = text:match "layers?[%s:=]+(%d+)" or not text:find "%f[%a]of%f[%A]" and not text:find "every" and text:match "(%d+)[%s%-_]*layers?%f[%A]"
  local groups = text:find "layers? per checkpoint" or text:find "layers? per segment" or text:find "layers? per group"
  if groups or text:find "%f[%a]uniform%f[%A]" then
    n = tonumber(n or text:match "uniform%D-(%d+)")
    if n and n > 1 then cells.note("layers that are recomputed one by one stand for groups of %d layers", n) end
    return "full"
  end
  local each = text:find "per block" or text:find "every block" or text:find "each block" or text:find "all blocks"
  if text:find "%f[%a]blocks?%f[%A]" and not each then
    local begins = text:find "^block" or text:find "^full" or text:find "method"
    n = begins and (text:match "%f[%a]blocks?%f[%A]%D-(%d+)" or text:match "^full%D-(%d+)") or n
    return n and ("full block %d"):format(tonumber(n)) or nil
  end
  return text:find "^full" and tonumber(n or 1) > 1 and ("full block %d"):format(tonumber(n)) or nil
end

-- The kernel of attention. Words that name none leave the choice to the framework.
function m.attention(row)
  local text = row.attention_backend:lower()
  local off = text:find "^no%s+flash" or text:find "^without%s+flash" or text:find "flash[%a_%s%-]*[:=]%s*0" or text:find "flash[%a_%s%-]*[:=]%s*false"
  if text:find "flash_attn=0" or text:find "nvte_flash" and off then row.attention_backend = "fused" return end
  if text:find "fused_attn=0" then row.attention_backend = "flash" return end
  for _, word in ipairs { "%f[%a]math", "eager", "naive", "vanilla", "standard", "^none", "^baddbmm" } do
    if off or text:find(word) then row.attention_backend = "unfused" return end
  end
  if text:find "^fa%s*$" then row.attention_backend = "flash" end
end

-- Switches of Megatron's columns. A cell may name the dtype of gradients instead of yes or no.
function m.switches(row)
  local reduce = (row.grad_reduce_in_bf16 or ""):lower()
  if reduce:find "fp32" or reduce:find "float32" then row.grad_reduce_in_bf16 = "0" end
  local graph = (row.cuda_graph or ""):lower()
  if graph:find "^enabled" then row.cuda_graph = "1" end
  if not cells.is_open(row.activation) then
    local text = row.activation:lower()
    local gated = text:find "%f[%a]gated" or text:find "^swi%-" or text:find "^silu%s*$" -- a configuration's hidden_act
    if text:find "ungated" or text:find "non%-gated" or text:find "not gated" then gated = nil end
    if gated then row.activation = text:find "gelu" and "geglu" or "swiglu" end
  end
  if (row.normalization or ""):lower():find "^ln%f[%A]" then row.normalization = "LayerNorm" end
end

-- The layers with experts, in the form of Megatron's option. A cell may say "[0, 1, 1]", "([0]*1+[1]*2)*2", "every 2" or "first 3 dense".
function m.layers_with_experts(row)
  local cell = row.moe_layer_freq:lower():gsub("%s+", " ")
  local every = cell:match "every (%w+)"
  every = every and (tonumber(every:match "^%d+") or (every == "other" or every == "second") and 2 or every == "layer" and 1) or tonumber(cell:match "^1 ?/ ?(%d+)$")
  if every then row.moe_layer_freq = tostring(math.tointeger(every)) return end
  local dense = tonumber(cell:match "^first (%d+) %a* ?dense" or cell:match "^(%d+) dense" or cell:match "^first (%d+) layers? dense")
  if dense and not cells.is_open(row.n_layers) then
    row.moe_layer_freq = ("([0]*%d+[1]*%d)"):format(dense, cells.count(row, "n_layers") - dense)
    return
  end
  local text = cell:gsub(" ", "")
  if not text:find "%[" or text:find "[^%d%[%]%(%)%+%*,]" then
    if #text > 2 and text:find "^[01]+$" then text = "[" .. text:gsub("(%d)", "%1,") .. "]" else return end
  end
  local function joined(part, times) return part:rep(tonumber(times)) end
  text = text:gsub("%[([01,]*)%]%*(%d+)", function(list, times) return joined((list:gsub(",", "")), times) end)
  text = text:gsub("%[([01,]*)%]", function(list) return (list:gsub(",", "")) end):gsub("%+", "")
  text = text:gsub("%(([01]*)%)%*(%d+)", joined):gsub("[()]", "")
  if not text:find "^[01]+$" then return end
  row.moe_layer_freq = text:gsub("%d", "+[%0]*1"):sub(2)
end

-- True if a text says that the weights of a frozen model have 4 bits. The library bitsandbytes also has optimizers of 8 bits.
function m.names_four_bits(text)
  local lower = cells.affirmed(text)
  for _, word in ipairs { "qlora", "gptq", "%f[%w]nf4%f[%W]", "%f[%w]awq%f[%W]", "4%-?bit base", "base in 4 bits", "load_in_4bit" } do
    if lower:find(word) then return true end
  end
  return (lower:find "bitsandbytes" or lower:find "%f[%a]bnb%f[%A]") ~= nil and not lower:find "8[%s_%-]?bit"
end

-- Returns a text without the number types that it denies: "bf16 (no fp8)", "bf16 (fp8 off)".
function m.without_denied(text)
  local kept = text
  for _, name in ipairs { "[Ff][Pp]8", "[Ff]loat8", "[Mm][Xx][Ff][Pp]8", "[Ff][Pp]4", "[Nn][Vv][Ff][Pp]4", "[Tt][Ff]32", "8%-bit" } do
    for _, word in ipairs { "[Nn]o", "[Nn]ot", "[Nn]on", "[Ww]ithout", "w/o" } do kept = kept:gsub("%f[%w]" .. word .. "[%s%-]+" .. name .. "%f[^%w]", "") end
    -- 8 bits that only move, beside products in 16 bits
    local moves = text:lower():find "^%s*bf?l?o?a?t?16" and { "dispatch", "all%-gather", "comm%a*", "kv" } or {}
    for _, word in ipairs(moves) do kept = kept:gsub("%f[%w]" .. name .. "%s+" .. word, "") end
    for _, word in ipairs { "[Oo]ff", "[Ff]alse", "[Nn]o", "[Dd]isabled" } do kept = kept:gsub("%f[%w]" .. name .. "%s*[:=]?%s*" .. word .. "%f[%A]", "") end
  end
  return kept
end

-- Returns the rank whose memory the row gives; nil: the row does not say, so the framework's log counts. The memory of a process
-- comes from another tool, which sees all ranks.
function m.reporting_rank(row)
  local text = (row.peak_mem_kind or ""):lower()
  if text:find "max[%a]* over%s+%a*%s*ranks" or text:find "max[%a]* over%s+%a*%s*gpus" or text:find "max[%a]* of all" then return "most" end
  if text:find "last rank" or text:find "last stage" then return "last" end
  if text:find "%f[%a]rank[%s%-]*0" or text:find "first rank" or text:find "first stage" then return "first" end
  return (text:find "^process" or text:find "process total") and "most" or nil
end

-- GPUs of clouds' machines. kind: documented; the pages of AWS, Google and Azure on their machines
local clouds = { { "p5%.", "H100-SXM5-80GB" }, { "p5en?%.", "H200" }, { "p4d%.", "A100-SXM4-40GB" }, { "p4de%.", "A100-SXM4-80GB" },
  { "a3[%s%-]high", "H100-SXM5-80GB" }, { "a3[%s%-]mega", "H100-SXM5-80GB" }, { "a3[%s%-]ultra", "H200" }, { "a2%-high", "A100-SXM4-40GB" }, { "a2%-ultra", "A100-SXM4-80GB" } }
function m.gpu(row)
  local text = row.gpu:lower()
  for _, known in ipairs(clouds) do if text:find("%f[%w]" .. known[1]) then row.gpu = known[2] return end end
  row.gpu = row.gpu:gsub("^([HAB])%-(%d%d%d)", "%1%2")
end

return m
