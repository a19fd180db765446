-- Fills the empty cells of a row of published training runs. A value is the documented default of
-- the row's framework, the public configuration of its model, or the smallest number that its other
-- cells allow. Each filled cell gets a note of rule assumed-cell. Rows with such cells are scored
-- separately.
local cells, catalog, gpus = require "tandem.published.cells", require "tandem.published.catalog", require "tandem.gpus"
local count, has, is_open, refuse = cells.count, cells.has, cells.is_open, cells.refuse
local recipes, spelling = require "tandem.published.recipes", require "tandem.published.spelling"
local releases = require "tandem.published.releases"
local gpu_count, hybrid, options = require "tandem.published.gpu_count", require "tandem.published.hybrid", require "tandem.published.options"
local m = {}

-- Documented defaults of frameworks.
-- zero_stage: Megatron-LM shards the optimizer only on request (--use-distributed-optimizer).
--   Recipes of NeMo and Megatron-Bridge request it. nanotron's stage is 0. OLMo, Levanter and EasyLM
--   shard weights over all devices.
-- by_node: true if weights are sharded over the GPUs of a node, and every node has a copy. LitGPT
--   pretrains so (litgpt/pretrain.py: HYBRID_SHARD).
-- ac: torchtitan's is "selective". Megatron-LM, NeMo and Megatron-Bridge do not recompute.
-- sp: recipes of NeMo and Megatron-Bridge use sequence parallelism with tp, because their overlap
--   of communication over tp needs it. With tp, torchtitan uses it by default; Automodel and
--   InternEvo (mode mtp) use it only on request.
-- whole: true if the samples of a rank are one micro-batch, because the framework does not
--   accumulate gradients by default. A pipeline needs several, so there a micro-batch is one sequence.
local frameworks = {
  { "^megatron%-lm", zero_stage = "0" }, { "^megatron%-core", zero_stage = "0" },
  { "automodel", zero_stage = "3", sp = "0" }, { "^megatron%-bridge", zero_stage = "1", sp = "1" }, { "nemo", zero_stage = "1", sp = "1" },
  { "^megatron", zero_stage = "0" }, { "nanotron", zero_stage = "0" },
  { "internevo", zero_stage = "1", sp = "0" }, { "^torchtitan", zero_stage = "3", ac = "selective(op)", sp = "1", whole = true },
  { "maxtext", zero_stage = "3", ac = "full", whole = true }, { "paddle", zero_stage = "1" },
  { "deepspeed", zero_stage = "0", whole = true }, { "fsdp", zero_stage = "3", whole = true },
  { "kempner", zero_stage = "3" }, { "olmo", zero_stage = "3" }, { "lit%-?gpt", zero_stage = "3", by_node = true }, { "lit%-?llama", zero_stage = "3" }, { "fairscale", zero_stage = "3" },
  { "levanter", zero_stage = "3" }, { "easylm", zero_stage = "3" }, { "axlearn", zero_stage = "3" },
  { "vescale", zero_stage = "3", whole = true }, { "torchtune", zero_stage = "3", whole = true },
  { "composer", zero_stage = "3", whole = true }, { "foundry", zero_stage = "3", whole = true },
  -- names of containers come last, because a container may have any framework: "torchtitan (ROCm)"
  { "nvidia", zero_stage = "1", sp = "1" }, { "rocm", zero_stage = "1", sp = "1" }, { "llmboost", zero_stage = "1", sp = "1" },
}

-- Frameworks that have no tensor and pipeline parallelism, or use them only on request. If a row of
-- such a framework leaves tp and pp empty, both are 1.
local uncut = { "deepspeed", "fsdp", "%f[%a]ddp%f[%A]", "^hf", "hugging", "transformers", "trainer", "^trl", "accelerate", "axolotl", "llama%-factory", "unsloth",
  "lightning", "lit%-?gpt", "torchtune", "torchtitan", "composer", "foundry", "nanogpt", "llm%.c", "maxtext" }
local function cuts_products(row)
  if has(row, "framework", "megatron") or has(row, "framework", "neox") or has(row, "framework", "nemo") then return true end
  for _, word in ipairs(uncut) do if has(row, "framework", word) then return false end end
  return true
end

function m.of(row)
  for _, known in ipairs(frameworks) do
    if has(row, "framework", known[1]) then return known end
  end
  return { zero_stage = (tonumber(row.dp_shard or "") or 1) > 1 and "3" or "0" }
end

-- Writes `value` into a cell, and records a note that it was assumed.
local function assume(row, key, value, why)
  row[key] = tostring(value)
  row.assumed[#row.assumed + 1] = key
  cells.note("%s is not stated; %s is assumed: %s", key, value, why)
end

local function assume_open(row, key, value, why)
  if is_open(row[key]) and value ~= nil then assume(row, key, value, why) end
end

-- ---- the model

-- Returns which layers have experts, in the form of Megatron's option --moe-layer-freq, or nil if
-- all have.
local function layers_with_experts(entry, layers)
  if entry.first then return ("([0]*%d+[1]*%d)"):format(entry.first, layers - entry.first) end
  return entry.every and tostring(entry.every) or nil
end

-- Returns the size in a model's name ("DeepSeek V3 16B"), in billions of parameters, or nil if it
-- names none. Names of Llama 4 do not count: they give the parameters that a token uses.
local function named_size(name)
  local text, most = " " .. name:lower():gsub("(%d)b(%d+)%f[^%w]", "%1.%2b"), nil -- BLOOM's "1b7"
  if text:find "llama[%s_-]?4" then return nil end
  for size in text:gmatch "[^%dxa%.](%d+%.?%d*)[%s_-]?b%f[%A]" do most = math.max(most or 0, tonumber(size)) end -- the largest size of a name counts: "OLMoE-1B-7B"
  return most
end

-- Refuses the row if its model's public configuration has another number of parameters than the row
-- states (in billions). Names are rounded: Gemma 7B has 8.5 billion.
local function check_size(row, entry)
  local stated, layers, most = tonumber(row.params_b), tonumber(row.n_layers), 1.1
  if not stated then stated, most = named_size(row.model), 1.6 end
  local own = catalog.parameters(entry)
  if not stated or not own or layers and layers ~= entry.l then return end
  local ratio = own / 1e9 / stated
  if ratio > most or ratio < (most < 1.2 and 0.9 or 1 / most) then
    refuse("the public configuration of %s has %.1f billion parameters, but the row states %g", row.model, own / 1e9, stated)
  end
end

-- Families by which a row is planned that names only the size of its model ("7B"): GPT-3 before Llama was published
-- (February 2023), otherwise Llama's.
local sized, sized_before = { "llama-2-%sb", "llama-%sb", "gpt-3-%sb" }, { "gpt-3-%sb", "llama-%sb" }

-- Names such a row's model by a model of that size.
local function name_size(row)
  local size = (row.model or ""):match "^%s*(%d+%.?%d*)%s*[bB]%s*$" or is_open(row.model) and (row.params_b or ""):match "^%d+%.?%d*$"
  if not size or not is_open(row.d_model) and not is_open(row.n_layers) then return end
  for _, form in ipairs(releases.is_before(row, "2023-02") and sized_before or sized) do
    local name = form:format(size)
    if catalog.find(name) then
      cells.note("the model is named by its size alone; the shape of %s is assumed", name)
      row.model = name
      return
    end
  end
end

-- Fills the sizes of the model from its public configuration. The configuration also gives options
-- for which the table has no column.
local function fill_model(row)
  name_size(row)
  local entry, from = catalog.find(row.model or "")
  if not entry and tonumber(row.params_b) and not named_size(row.model or "") then
    local own = tonumber(row.params_b)
    for _, size in ipairs { own, own // 1, (own + 0.5) // 1 } do -- "llama2" with 70 or 70.6 billion parameters
      local name = ("%s-%gb"):format(row.model or "", size)
      if not entry then entry, from = catalog.find(name) end
      if entry then row.model = name break end
    end
  end
  local shaped = not is_open(row.d_model) and not is_open(row.n_layers)
  local layers = (row.model or ""):lower():match "%f[%w](%d+)[%s_%-]*layers?%f[%A]"
  local other = layers and (row.model:lower():find "recomp" or row.model:lower():find "dense" or row.model:lower():find "first" or row.model:lower():find "last")
  if layers and not other and is_open(row.n_layers) then row.n_layers = layers end
  if entry and not entry.e and is_open(row.moe_experts) and catalog.names_experts(row.model) then refuse("the experts are not stated, and no public configuration is known: %s", row.model) end
  if entry and is_open(row.n_layers) and catalog.names_part(row.model) then refuse("the sizes of this version of the model are not stated: %s", row.model) end
  local same = entry and (not shaped or tonumber(row.d_model) == entry.d)
  if same then
    if not shaped then check_size(row, entry) end
    for short, key in pairs(catalog.columns) do
      if short ~= "v" then assume_open(row, key, entry[short], from) end
    end
    for short, key in pairs(catalog.options) do
      assume_open(row, key, entry[short], from)
    end
    if is_open(row.moe_layer_freq) then row.moe_layer_freq = "" end
    assume_open(row, "moe_layer_freq", layers_with_experts(entry, count(row, "n_layers")), from)
    if entry.tied then assume_open(row, "untie_embeddings", 0, from) end
  end
  if row.needs_mla and is_open(row.mla) then refuse("the sizes of latent attention (mla) are not stated, and no public configuration is known: %s", row.model) end
  if is_open(row.d_model) or is_open(row.n_layers) then
    refuse("the model's width and layers are not stated, and no public configuration is known: %s", row.model or "")
  end
  local dim = count(row, "d_model")
  local head, groups = count(row, "head_dim", 128), count(row, "n_kv_heads", 1)
  assume_open(row, "n_heads", math.max(1, dim // head // groups) * groups, ("heads of %d"):format(head))
  assume_open(row, "n_kv_heads", count(row, "n_heads"), "a KV head for each query head")
  assume_open(row, "d_ff", 4 * dim, "four times the width")
end

-- Fills the vocabulary. Megatron and NeMo pad a vocabulary to a multiple of 128 x tp, even if the
-- row states it (training/tokenizer/tokenizer.py: _vocab_size_with_padding). Megatron-Bridge pads
-- it only if it comes from a tokenizer (should_pad_vocab).
local function fill_vocabulary(row)
  if not is_open(row.vocab) then
    local pads = has(row, "framework", "^megatron%-lm") or has(row, "framework", "^megatron%-core") or has(row, "framework", "^nemo") and not has(row, "framework", "automodel")
    local multiple = 128 * count(row, "tp", 1)
    if pads and row.padded == nil then row.vocab = tostring(-(-count(row, "vocab") // multiple) * multiple) end
    return
  end
  local from = row.vocab_from or ""
  local size, why = tonumber(from:match "default (%d+)%)"), "the default of the row's configuration file"
  if not size then size, why = catalog.vocabulary(row.model or "", from) end
  local multiple = (has(row, "framework", "megatron") or has(row, "framework", "nemo")) and 128 * count(row, "tp", 1) or 1
  assume(row, "vocab", -(-(size or 50257) // multiple) * multiple, why)
end

-- ---- the configuration file

-- A row may name its configuration file, or several files that fit it (config_from, notes). The
-- name of an NVIDIA file states the mesh, and whether products have 4 bits:
-- config_DGXB200_8x8x1xtp1pp1cp8_8b_fp4.sh. Returns the number of named files, the number of those
-- with 4 bits, and the mesh that most of them have ("tp1pp1cp8").
local function named_files(row)
  local n, four, often, most = 0, 0, {}, nil
  local text = (row.notes or ""):find "%.sh" and row.notes or row.config_from or ""
  for name in text:gmatch "config_[%w_%-]+%.sh" do
    n, four = n + 1, four + (name:find "fp4" and 1 or 0)
    local mesh = name:match "tp%d+pp%d+cp%d+"
    if mesh then
      often[mesh] = (often[mesh] or 0) + 1
      if not most or often[mesh] > often[most] then most = mesh end
    end
  end
  return n, four, most
end

local function fill_named_mesh(row)
  local _, _, mesh = named_files(row)
  if not mesh or not (is_open(row.tp) and is_open(row.pp) and is_open(row.cp)) then return end
  local tp, pp, cp = mesh:match "tp(%d+)pp(%d+)cp(%d+)"
  for key, value in pairs { tp = tp, pp = pp, cp = cp } do assume(row, key, value, "the name of its configuration file") end
end

-- ---- precision, recomputation, states

-- Fills an empty precision: 16 bits, unless the page says that its runs use the fastest precision
-- (precision_default). Such runs train in 8 bits if the GPU can. On Blackwell, NVIDIA's containers
-- train in 4 bits since 25.09 (Transformer Engine 2.8: NVFP4BlockScaling). If the row names
-- configuration files, the precision of most of these files counts.
local function fill_precision(row)
  if not is_open(row.precision) then return end
  for _, key in ipairs { "framework", "model" } do
    for _, name in ipairs { "mxfp8", "nvfp4", "float8", "fp8", "bf16", "fp16" } do
      if cells.affirms(row[key], "%f[%w]" .. name .. "%f[^%w]") then return assume(row, "precision", name, ("the cell %s names it"):format(key)) end
    end
  end
  local n_files, n_four = named_files(row)
  local gpu = gpus.gpus[gpus.find(row.gpu) or ""]
  local contest = row.precision_default == "fastest"
  local release = row.framework:match "Release (2%d%.%d%d)[^%d]*$"
  local four = contest and gpu and gpu.fp4 and release and release >= "25.09" and not cells.is_lora(row)
  if n_files > 0 and 2 * n_four ~= n_files then four = 2 * n_four > n_files end
  if four then return assume(row, "precision", "nvfp4", n_four > 0 and "most of its configuration files" or "the fastest precision of its container") end
  local eight = contest and gpu and gpu.fp8
  local half = gpu and not gpu.bf16 and "fp16" or "bf16"
  assume(row, "precision", eight and "fp8" or half, eight and "the fastest precision of its benchmark's runs" or "mixed precision of this GPU")
end

local function fill_states(row)
  local default = m.of(row)
  if is_open(row.zero_stage) then row.zero_stage = cells.stage_of_framework(row.framework) or "" end
  if cells.stage(row) == nil then
    local zero = recipes.zero(row)
    assume(row, "zero_stage", zero or default.zero_stage, zero and "Megatron-Bridge's recipe of this model" or "the framework's default")
    local node, n = count(row, "gpus_per_node", 8), count(row, "n_gpus", 1)
    if default.by_node and n > node and n % node == 0 and is_open(row.dp_shard) and is_open(row.dp_replicate) then
      assume(row, "dp_shard", node, "the framework shards weights over a node")
      assume(row, "dp_replicate", n // node, "every node has a copy of the weights")
    end
  end
  if is_open(row.ac) or has(row, "ac", "^see recipe") or has(row, "ac", "^selective %(ratio") then
    local recipe = recipes.ac(row)
    assume(row, "ac", recipe or default.ac or "none", recipe and "Megatron-Bridge's recipe of this model" or "the framework's default")
  end
  assume_open(row, "offloaded_blocks", recipes.offload(row), "Megatron-Bridge's recipe of this model")
end

-- ---- the mesh and the batch

-- Returns the bytes of weights and states, and the bytes of activations saved for one sequence.
-- Both are sums over all ranks of a replica. A parameter takes 18 bytes: 2 for the weight, and 16
-- for the gradient and three fp32 copies. With ZeRO, 8 bytes are counted. A frozen base (LoRA) has
-- only weights. For each element of a block's input, 34 bytes are saved (Korthikanti et al., arXiv
-- 2205.05198). It is 20 bytes if products save 8 bits, 16 if the base is also frozen, and 2 if
-- blocks are recomputed.
local function bytes_of(row)
  local params = tonumber(row.params_b)
  local dim, layers, ff = count(row, "d_model"), count(row, "n_layers"), count(row, "d_ff")
  local n = params and params * 1e9 or layers * (4.0 * dim * dim + 3 * dim * ff) + 2.0 * count(row, "vocab", 50257) * dim
  local eight = has(row, "precision", "fp[84]")
  local states = cells.is_lora(row) and (eight and 1 or 2) or (cells.stage(row) or 0) > 0 and 8 or 18
  local kept = has(row, "ac", "^full") and 2 or eight and (cells.is_lora(row) and 16 or 20) or 34
  return n * states, kept * 1.0 * count(row, "seq", 4096) * dim * layers
end

-- Returns the smallest number of ranks that can hold the model in nine tenths of their memory. It
-- is a power of two. The batch must have at least one sample for each group of so many ranks.
local function replica(row, n_gpus, gpu)
  local states, kept = bytes_of(row)
  local ranks, most = 1, gpu.memory * 1048576 * 0.9
  local batch = is_open(row.global_batch_seqs) and n_gpus or count(row, "global_batch_seqs")
  while ranks < n_gpus and n_gpus % (2 * ranks) == 0 and ((states + kept) / ranks > most or n_gpus // ranks > batch) do
    ranks = 2 * ranks
  end
  return ranks
end

-- If the cell `gpu` is empty, another cell may name the GPU, as in "dgx_h100" or "8 x H100 SXM".
local function fill_gpu(row)
  if not is_open(row.gpu) then return end
  for _, key in ipairs { "platform", "interconnect", "environment", "model", "source_path", "source" } do
    local name = gpus.find(row[key] or "")
    if name then return assume(row, "gpu", name, ("the cell %s names it"):format(key)) end
  end
  -- If the GPU is unknown, memory can still be predicted, because it depends little on the GPU, but
  -- time cannot. A page may name the GPU that its recipes use by default (gpu_default).
  local default = not is_open(row.gpu_default) and row.gpu_default or nil
  if not default then row.no_time = "the GPU" end
  assume(row, "gpu", default or "A100-SXM4-80GB", default and "the default of its page's recipes" or "no cell names the GPU")
end

-- A model without experts has no ranks of ep.
local function fill_experts(row)
  if count(row, "ep", 1) > 1 and is_open(row.moe_experts) and not has(row, "hybrid_pattern", "^[^/]*e") then
    assume(row, "ep", 1, "the model has no experts")
  end
end

-- The number of chunks on each rank in NeMo: virtual_pipeline_model_parallel_size in the training
-- configurations of NeMo-Framework-Launcher (gpt3/175b.yaml, llama/llama2_70b.yaml,
-- llama/llama3_70b.yaml, nemotron/nemotron_22b.yaml and nemotron_340b.yaml). Each of these has the
-- same tp and pp as NeMo's page.
-- kind: documented; NeMo-Framework-Launcher's training configurations
local recipe = "the framework's recipe of this model"
local chunks = {
  { "175b", 12, recipe }, { "llama%-?2.*70b", 20, recipe }, { "llama%-?3.*70b", 5, recipe },
  { "nemotron.*22b", 10, recipe }, { "340b", 12, recipe },
  -- The launcher's Llama 2 13B has no pipeline. NeMo 24.07's page has one for it, with ten chunks
  -- on 16 GPUs. Ten chunks are also assumed for 8 GPUs of that page, and for the page of 24.05,
  -- which does not state chunks.
  -- kind: assumed; NeMo 24.07's page
  { "llama%-?2.*13b", 10, "NeMo 24.07's page on 16 GPUs" },
}

local function fill_chunks(row)
  assume_open(row, "pipeline_layout", recipes.layout(row), "Megatron-Bridge's recipe of this model")
  if not is_open(row.vp) or count(row, "pp") == 1 or not has(row, "framework", "nemo") then return end
  for _, known in ipairs(chunks) do
    if has(row, "model", known[1]) and count(row, "n_layers") % (count(row, "pp") * known[2]) == 0 then
      return assume(row, "vp", known[2], known[3])
    end
  end
end

-- Fills the empty degrees of parallelism, and the number of GPUs. If all weights are sharded, tp,
-- pp and cp are 1. Otherwise tp gets the ranks of a node, and pp gets the rest.
local function fill_mesh(row)
  local gpu = gpus.gpus[gpus.find(row.gpu) or ""] or refuse("no such GPU in the library: %s", row.gpu)
  local open = is_open(row.tp) and is_open(row.pp) and cuts_products(row)
  if open and not is_open(row.n_gpus) and (cells.stage(row) or 0) < 3 then
    local ranks = replica(row, count(row, "n_gpus"), gpu) // count(row, "cp", 1)
    local tp = math.max(1, math.min(ranks, count(row, "gpus_per_node", 8), 8))
    assume(row, "tp", tp, "the fewest ranks that hold the model")
    assume(row, "pp", math.max(1, ranks // tp), "the fewest ranks that hold the model")
    assume_open(row, "cp", 1, "the fewest ranks that hold the model")
  end
  for _, key in ipairs { "tp", "pp", "cp" } do assume_open(row, key, 1, "the row does not name the axis") end
  local split = cells.flag(row, "overlap_tp") and "1" or m.of(row).sp
  -- Megatron refuses to train experts with tp but without sequence parallelism (core/transformer/moe/moe_layer.py: forward)
  local calls_megatron = has(row, "framework", "megatron") or has(row, "framework", "flagscale") or has(row, "framework", "^primus")
  if not is_open(row.moe_experts) and calls_megatron then split = "1" end
  if count(row, "tp") > 1 then assume_open(row, "sp", split, "the framework's recipes") end
  if not is_open(row.n_gpus) then return end
  -- Takes whole nodes, with at least four micro-batches for each pipeline stage, so that the bubble
  -- is small (GPipe, arXiv 1811.06965). The step time depends on the assumed number of data ranks,
  -- so it is not scored.
  local need, per_node = cells.replica(row), count(row, "gpus_per_node", gpus.find(row.gpu):find "^GB" and 4 or 8)
  need = math.max(need, count(row, "pp", 1) * count(row, "ep", 1) * count(row, "etp", 1))
  local data = count(row, "dp_shard", 1) * count(row, "dp_replicate", 1)
  if data > 1 and is_open(row.dp_replicate) then data = data * (row.directions or 1) end
  local whole = need > per_node and -(-need // per_node) * per_node or need
  local from_memory = data == 1 and gpu_count.of_memory(row, whole, cells.replica(row) * count(row, "global_batch_seqs", 1) // count(row, "micro_batch", 1))
  if from_memory then
    row.no_time = "the number of GPUs"
    cells.note_measured("the number of GPUs is taken from measured memory")
    return assume(row, "n_gpus", from_memory, "the memory that it occupies between steps")
  elseif data == 1 then
    local pieces = count(row, "global_batch_seqs", 1) // count(row, "micro_batch", 1)
    while pieces >= 8 * data * count(row, "pp", 1) do data = 2 * data end
    row.no_time = "the number of GPUs"
  end
  need = math.max(need, cells.replica(row) * data)
  if need > per_node then need = -(-need // per_node) * per_node end
  assume(row, "n_gpus", -(-need // cells.replica(row)) * cells.replica(row), "the whole nodes that its mesh needs")
end

-- Fills the batch. If the row gives the tokens per second and the step time, the global batch
-- follows from them. Otherwise, a row without a global batch is assumed to have one micro-batch on
-- each data rank, as Megatron does (arguments.py).
local function fill_batch(row)
  local data = math.max(1, count(row, "n_gpus") // cells.replica(row) // (row.directions or 1))
  local each = (row.global_batch_seqs or ""):match "^%s*(%d+)%s+per DP"
  if each then row.global_batch_seqs = tostring(math.tointeger(tonumber(each)) * data) end
  local name = (row.model or ""):lower()
  local length, unit = name:match "%f[%a]seq%a*[%s_%-]*l?e?n?g?t?h?[%s_%-=:]*(%d+)(k?)%f[%W]"
  if name:find "^bert" and name:find "phase%s*1%f[%D]" then length, unit = "128", "" end
  if length and tonumber(length) > 64 or unit == "k" then assume_open(row, "seq", tonumber(length) * (unit == "k" and 1024 or 1), "the name of the model gives it") end
  assume_open(row, "seq", (row.model or ""):find "^bert" and 512 or 4096, "the framework's default length")
  if is_open(row.micro_batch) then
    local own = not is_open(row.global_batch_seqs) and count(row, "global_batch_seqs") // data // (row.directions or 1) // count(row, "accumulated", 1) or 1
    local whole = m.of(row).whole and count(row, "pp", 1) == 1
    assume(row, "micro_batch", whole and math.max(1, own) or 1, whole and "the framework does not accumulate gradients by default" or "one sequence at a time")
  end
  local times = count(row, "accumulated", 1) * count(row, "micro_batch") * data
  if not is_open(row.accumulated) and is_open(row.global_batch_seqs) then row.global_batch_seqs = tostring(times) end
  if row.must_agree and count(row, "global_batch_seqs") ~= times then
    refuse("micro_batch and global_batch_seqs do not agree: %s x %s, %s", row.micro_batch, row.accumulated, row.global_batch_seqs)
  end
  if is_open(row.global_batch_seqs) then
    local micro, rate, step_s = count(row, "micro_batch"), cells.number(row, "tokens_per_s_per_gpu"), cells.seconds(row)
    local pieces = rate and step_s and rate * count(row, "n_gpus") * step_s / count(row, "seq") / (micro * data) or row.directions or 1
    if not (rate and step_s) then row.no_time = "the sequences of a step" end
    assume(row, "global_batch_seqs", math.max(1, math.floor(pieces + .5)) * micro * data,
      rate and step_s and "the tokens of a step" or "a micro-batch for each data rank")
  end
end

-- Makes the batch a multiple of micro-batch x data ranks. If a smaller micro-batch is enough for
-- that, the micro-batch is made smaller; otherwise the batch is made larger.
local function even_batch(row)
  local data, micro, batch = math.max(1, count(row, "n_gpus") // cells.replica(row)), count(row, "micro_batch"), count(row, "global_batch_seqs")
  if batch % (micro * data) == 0 then return end
  if batch % data == 0 then
    while batch // data % micro ~= 0 do micro = micro - 1 end
    assume(row, "micro_batch", micro, ("%d sequences on %d data ranks are not a multiple of the stated one"):format(batch, data))
  else
    assume(row, "global_batch_seqs", -(-batch // (micro * data)) * micro * data,
      ("%d sequences do not divide over %d data ranks"):format(batch, data))
  end
end

function m.fill(row)
  row.assumed = {}
  for _, key in ipairs { "gpu", "framework", "model", "sp", "compile", "moe_experts", "ep" } do row[key] = row[key] or "" end
  options.fill(row)
  spelling.normalise(row)
  -- the two halves of DualPipe hold the same weights
  if row.directions and not is_open(row.dp_replicate) then row.dp_replicate = tostring(row.directions * count(row, "dp_replicate", 1)) end
  hybrid.fill(row)
  local open_seq = is_open(row.seq)
  fill_gpu(row)
  for _, key in ipairs { "tp", "pp", "cp", "ep", "vp" } do  -- "0" and "None" become "1"
    if not is_open(row[key]) then row[key] = tostring(count(row, key, 1)) end
  end
  fill_model(row)
  fill_experts(row)
  fill_named_mesh(row)
  fill_precision(row)
  recipes.find(row)
  assume_open(row, "mtp_layers", recipes.mtp(row), "Megatron-Bridge's recipe of this model")
  fill_states(row)
  fill_mesh(row)
  fill_chunks(row)
  fill_vocabulary(row)
  if not has(row, "framework", "^kempnerforge") then  -- KempnerForge's script gives its own batch
    fill_batch(row)
    even_batch(row)
  end
  if open_seq and has(row, "flag", "variable") then row.no_time = "the length of its sequences" end
  if row.no_time then cells.untimed(row.no_time) end
  row.missing = ""
end

return m
