-- The settings in recipes of Megatron-Bridge and NeMo: recomputation, the types of gradients and
-- moments, and the exchange between ranks of experts. They fill rows that state only framework,
-- model, GPU and precision. This file also lists the layers that torchtitan keeps in 16 bits.
local cells, gpus = require "tandem.published.cells", require "tandem.gpus"
local has = cells.has
local m = {}

-- An entry begins with patterns of the model, the GPU and the precision. In each column, the first
-- matching entry with a value counts. The columns, with the option of Megatron that has the value:
-- ac: the recomputation (recompute_modules)
-- moments: the type of the optimizer's moments, if it is not the type in which weights are stored
--   (exp_avg_dtype)
-- gradients: the type in which gradients are summed and reduced (grad_reduce_in_fp32)
-- exchange: the token dispatcher (moe_token_dispatcher_type, moe_flex_dispatcher_backend)
-- overlap_ep: 1 if another micro-batch computes during exchanges (overlap_moe_expert_parallel_comm)
-- zero: the ZeRO stage (use_megatron_fsdp)
-- offload: the number of first layers whose activations are in host memory
--   (cpu_offloading_num_layers)
-- loss: the fused loss: te is Transformer Engine's, native is compiled (cross_entropy_fusion_impl)
-- mtp: the number of heads that predict further tokens (mtp_num_layers)
-- layout: the blocks of each part of the pipeline (pipeline_model_parallel_layout)
-- accounts: true if the embedding and the loss count as blocks
--   (account_for_embedding_in_pipeline_split)
--
-- For some models, the recipe depends on the release or on the row's layout. These columns say to
-- which rows an entry applies:
-- cut: rows with tp > 1
-- tp, pp, vp, ep, mb, gpus, batch, parts: rows that state this degree, micro-batch, number of GPUs,
--   batch, or number of parts of the pipeline
-- fsdp: rows that state ZeRO stage 3 or no stage, and whose 8-bit operands are not in blocks (the
--   recipes of MXFP8 have a pipeline)
--
-- The entries are of pre-training, so no entry for a model applies to LoRA. Recipes named
-- large_scale, dev and hsdp are left out. For Qwen3 235B on B200 and B300, the recipes of 64 GPUs
-- are listed.
-- kind: source; Megatron-Bridge 067f987d: src/megatron/bridge/perf_recipes, recipes; tags v0.3.0 to v0.5.1: scripts/performance/configs
local bridge = {
  { "deepseek.*v3", "^H100", "", ac = "selective(mla_up_proj mlp)" },
  { "deepseek.*v3", "^B200", "mx", pp = 8, ac = "selective(mla_up_proj mlp)", overlap_ep = "1", exchange = "flex deepep" },
  { "deepseek.*v3", "^B200", "fp4", pp = 8, ac = "selective(mla_up_proj layernorm moe_act)", overlap_ep = "1", exchange = "flex deepep" },
  { "deepseek.*v3", "^B300", "mx", pp = 8, vp = 2, overlap_ep = "1" },
  { "deepseek.*v3", "^GB200", "mx", ac = "selective(mla_up_proj)", overlap_ep = "1" },
  { "deepseek.*v3", "^GB200", "fp", ac = "selective(mlp)" },
  { "deepseek.*v3", "^GB300", "bf16", ac = "selective(moe_act)" },
  { "deepseek.*v3", "^GB300", "mx", mb = 1, ac = "none", overlap_ep = "1" },
  { "deepseek.*v3", "", "", parts = 4, layout = "Et*16|(t*16|)*2t*13mL" },
  { "deepseek.*v3", "", "", parts = 8, layout = "Et*8|(t*8|)*6t*5mL" },
  { "deepseek.*v3", "", "", parts = 16, layout = "Et*4|(t*4|)*14tmL" },
  { "deepseek.*v3", "", "", parts = 32, layout = "Et|(tt|)*30mL" },
  { "deepseek.*v3", "", "", ac = "selective(mla_up_proj)", moments = "bf16", exchange = "flex hybridep", mtp = "1" },
  { "moonlight", "", "", moments = "bf16" },
  { "moonlight", "", "", cut = true, exchange = "alltoall", overlap_ep = "0" },
  { "moonlight", "", "", exchange = "flex hybridep", overlap_ep = "1" },
  { "gpt.?oss.?120b", "^H100", "", ac = "selective(layernorm moe_act)" },
  { "gpt.?oss.?120b", "^B200", "", ac = "selective(layernorm moe_act)" },
  { "gpt.?oss.?120b", "^GB200", "bf16", ac = "selective(layernorm moe_act)" },
  { "gpt.?oss.?120b", "^GB300", "mx", overlap_ep = "1" },
  { "gpt.?oss.?120b", "^GB200", "", overlap_ep = "1" },
  { "gpt.?oss.?120b", "^B300", "", exchange = "flex hybridep" },
  { "gpt.?oss.?120b", "^GB", "mx", exchange = "flex hybridep" },
  { "gpt.?oss.?20b", "", "", exchange = "flex hybridep" },
  { "kimi", "^H100", "", ac = "selective(mla_up_proj mlp)" },
  { "kimi", "", "", ac = "selective(mla_up_proj)" },
  { "kimi", "^GB", "", exchange = "flex hybridep" },
  { "kimi", "", "", parts = 4, layout = "Et*16|(t*16|)*2t*13L" },
  { "kimi", "", "", parts = 8, layout = "Et*8|(t*8|)*6t*5L" },
  { "kimi", "", "", parts = 16, layout = "Et*4|(t*4|)*14tL" },
  { "kimi", "", "", parts = 32, layout = "Et|(tt|)*30L" },
  { "qwen3.*235b", "", "", accounts = true },
  { "qwen3.*235b", "^H100", "", overlap_ep = "1" },
  { "qwen3.*235b", "^GB", "mx", overlap_ep = "1" },
  { "qwen3.*235b", "^[BG]B?300", "", exchange = "flex hybridep" },
  { "qwen3.*235b", "^GB200", "", exchange = "flex hybridep" },
  { "qwen3.*30b", "^H100", "", pp = 2, exchange = "flex deepep", overlap_ep = "1" },
  { "qwen3.*30b", "^H100", "bf16", overlap_ep = "1" },
  { "qwen3.*30b", "^G?B", "mx", overlap_ep = "1" },
  { "qwen3.*30b", "", "", exchange = "flex hybridep" },
  { "llama3.?8b", "^H100", "fp8", ac = "full block 5" },
  { "llama3.?70b", "^B300", "bf16", fsdp = true, tp = 1, pp = 1, zero = "3" },
  { "llama3.?70b", "^B300", "fp8", fsdp = true, tp = 1, pp = 1, zero = "3" },
  { "llama3.?70b", "^B200", "fp8", fsdp = true, tp = 1, pp = 1, zero = "3", offload = 5 },
  { "llama3.?70b", "^GB200", "bf16", fsdp = true, tp = 1, pp = 1, zero = "3", offload = 20 },
  { "llama3.?70b", "^GB200", "fp8", fsdp = true, tp = 1, pp = 1, zero = "3", offload = 40 },
  { "llama3.?70b", "^GB300", "bf16", fsdp = true, tp = 1, pp = 1, zero = "3", offload = 30 },
  { "llama3.?70b", "^GB300", "fp8", fsdp = true, tp = 1, pp = 1, zero = "3", offload = 20 },
  { "llama3.*405b", "^G?B300", "bf16", fsdp = true, tp = 2, pp = 1, zero = "3", offload = 40 },
  { "llama3.*405b", "^GB200", "fp8", fsdp = true, tp = 2, pp = 1, zero = "3", offload = 92 },
  { "llama3.*405b", "^GB300", "fp8", fsdp = true, tp = 2, pp = 1, zero = "3", offload = 10 },
  { "llama3.*405b", "^G?B200", "fp4", gpus = 128, batch = 64, pp = 16, vp = 8, ac = "full block 1" },
  { "llama3.*405b", "", "", accounts = true },
  { "nemotron.?3.?nano", "^H100", "fp8", ep = 8, ac = "selective(moe layernorm core_attn moe_act)" },
  { "nemotron.?3.?nano", "^H100", "fp8", ac = "selective(layernorm)" },
  { "nemotron.?3.?nano", "^H100", "", ac = "selective(moe layernorm)" },
  { "nemotron.?3.?super", "^H100", "", ac = "selective(moe_act moe layernorm core_attn)", moments = "bf16" },
  { "nemotron.?3.?super", "^B200", "bf16", ac = "selective(moe_act moe layernorm core_attn)" },
  { "nemotron.?3.?super", "^B200", "fp8", ac = "selective(moe_act layernorm)" },
  { "nemotron.?3.?super", "^B300", "bf16", ac = "selective(moe_act layernorm)" },
  { "nemotron.?3.?super", "^B300", "fp4", ac = "selective(moe_act layernorm)" },
  { "nemotron.?3.?ultra", "^GB", "", ac = "selective(moe_act)" },
  { "nemotron.?3.?ultra", "", "", loss = "native" },
  { "nemotron.?3", "", "", exchange = "flex hybridep" },
  -- Defaults of Megatron-Bridge (perf_recipes/_common.py: _benchmark_common, _perf_precision).
  -- Mixtures of experts without an entry are assumed to exchange tokens over NCCL.
  { "", "", "", gradients = "bf16", exchange = "alltoall", loss = "te" },
}

-- Recipes by the beginning of the cell `framework`. nemotron_340b.yaml of NeMo-Framework-Launcher
-- states grad_sync_dtype. NeMo's other recipes of 2024 sum and reduce gradients in fp32.
local frameworks = {
  { "^megatron%-bridge", bridge },
  { "^nemo", { { "^nemotron%-340b", "", "", gradients = "bf16" } } },
}

-- Returns the paths of the layers that stay in 16 bits while others compute in 8 or 4 bits, or nil
-- if there are none. torchtitan's "bf16 tail" keeps the last 15 % of the layers in 16 bits
-- (components/quantization/nvfp4.py, nvfp4_bf16_tail_fqns). Megatron keeps some of the first and
-- the last layers (--first-last-layers-bf16).
function m.tail(row)
  local list, n = {}, cells.count(row, "n_layers")
  local first, last = cells.count(row, "first_bf16", 0), has(row, "precision", "tail") and n - n * 85 // 100 or cells.count(row, "last_bf16", 0)
  for i = 0, n - 1 do
    if i < first or i >= n - last then list[#list + 1] = ("layers.%d"):format(i) end
  end
  return #list > 0 and list or nil
end

-- Returns true if the entry does not depend on this number, or if the row states the same number.
local function states(row, key, n) return not n or not cells.is_open(row[key]) and cells.count(row, key, 1) == n end

local function has_mesh(row, known)
  local n_pp = cells.count(row, "pp", 1)
  for key, cell in pairs { tp = "tp", pp = "pp", vp = "vp", ep = "ep", mb = "micro_batch", gpus = "n_gpus", batch = "global_batch_seqs" } do
    if not states(row, cell, known[key]) then return false end
  end
  return (not known.cut or cells.count(row, "tp", 1) > 1) and
    (not known.parts or n_pp > 1 and n_pp * cells.count(row, "vp", 1) == known.parts)
end

local function holds(row, known)
  local gpu, stage = gpus.find(row.gpu or "") or "", cells.stage(row)
  return has(row, "model", known[1]) and gpu:find(known[2]) and has(row, "precision", known[3]) and has_mesh(row, known) and
    (known[1] == "" or not cells.is_lora(row)) and
    (not known.fsdp or (stage == nil or stage == 3) and not has(row, "precision", "mx") and not has(row, "fp8_recipe", "^mx"))
end

-- Stores the row's recipe in row.recipe. Must be called while the mesh has only cells that the row
-- itself states, because cells that are assumed later must not choose a recipe.
function m.find(row)
  row.recipe = {}
  for _, framework in ipairs(frameworks) do
    for _, known in ipairs(has(row, "framework", framework[1]) and framework[2] or {}) do
      for column, value in pairs(holds(row, known) and known or {}) do
        if row.recipe[column] == nil then row.recipe[column] = value end
      end
    end
  end
end

-- Returns the value of a column in the row's recipe; nil: the column is empty, or no recipe is
-- known.
local function of(row, column) return row.recipe[column] end

-- Each of these functions returns the recipe's value for the row, or nil if no recipe is known.
function m.ac(row) return of(row, "ac") end
function m.zero(row) return of(row, "zero") end
function m.offload(row) return of(row, "offload") end
function m.mtp(row) return of(row, "mtp") end
function m.layout(row) return of(row, "layout") end
function m.loss(row) return not cells.is_lora(row) and of(row, "loss") or nil end

-- Returns true if the embedding and the loss count as blocks of the pipeline.
function m.accounts(row) return of(row, "accounts") == true end

-- Returns true if the framework's scripts switch off NCCL's sums in NVLink switches (NVLS). Nearly
-- all recipes do.
-- kind: source; Megatron-Bridge 067f987d: NCCL_NVLS_ENABLE in perf_recipes; v0.3.0: scripts/performance/perf_plugins.py
function m.no_nvls(row) return has(row, "framework", "^megatron%-bridge") end

-- Returns true if gradients are summed and reduced in bf16.
function m.half_gradients(row) return of(row, "gradients") == "bf16" end

-- Returns the type of the optimizer's moments, or nil if it is the type in which weights are
-- stored. The cell exp_avg_dtype overrides the recipe. Moments of 8 bits are planned in 16 bits,
-- and `moment_bytes` gives their true size.
function m.moments(row)
  if cells.is_open(row.exp_avg_dtype) then return of(row, "moments") end
  if has(row, "exp_avg_dtype", "bf") or has(row, "exp_avg_dtype", "8") then return "bf16" end
  if has(row, "exp_avg_dtype", "16") or has(row, "exp_avg_dtype", "half") then return "fp16" end
  if has(row, "exp_avg_dtype", "32") or has(row, "exp_avg_dtype", "^float$") then return nil end
  cells.refuse("exp_avg_dtype is not known: %s", row.exp_avg_dtype)
end

-- Returns the bytes that each of the plan's two moments of Adam must have so that they add up to
-- the row's moments, if plans lack the row's kind: 8 bits, or one moment instead of two. Returns
-- nil if a plan can have the row's moments.
function m.moment_bytes(row)
  local known = cells.optimizer(row)
  if known and known.bytes then return known.bytes / 2 end
  local each = has(row, "exp_avg_dtype", "8") and 1 or known and known.one and ({ bf16 = 2, fp16 = 2 })[m.moments(row)] or known and known.one and 4
  return each and (known and known.one and each / 2 or each) or nil
end

-- Returns the name of the token dispatcher in lower case. The cell moe_dispatcher overrides the
-- recipe.
local function exchange(row)
  return (cells.is_open(row.moe_dispatcher) and of(row, "exchange") or row.moe_dispatcher or ""):lower()
end

-- Returns true if exchanges between the ranks of experts use DeepEP or HybridEP.
function m.is_flex(row)
  local words = exchange(row)
  return words:find "flex" ~= nil or words:find "deepep" ~= nil or words:find "hybridep" ~= nil
end

-- Returns the bytes of HybridEP's buffers on a rank that exchanges `tokens` tokens among `ep`
-- ranks, with `per_node` ranks on a node; 0 if the row uses another dispatcher. PyTorch's allocator
-- does not count them, because cudaMalloc makes them. Tokens have 16 bits, probabilities and scales
-- 32. Dispatch and combine share the buffers of a node (use_shared_buffer).
-- kind: source; DeepEP 94a9f8f (branch hybrid-ep): csrc/hybrid_ep/buffer/intranode.cu and internode_doca.cu
-- (allocate_dispatch_buffers, allocate_combine_buffers), config.cuh (max_num_of_tokens_per_rank)
function m.exchange_bytes(row, tokens, ep, per_node)
  if not exchange(row):find "hybridep" or ep == 1 then return 0 end
  local dim, near = cells.count(row, "moe_latent", cells.count(row, "d_model")), math.min(ep, per_node)
  local far, most = ep // near - 1, -(-math.max(tokens, 512) // 64) * 64
  local token, chances, scales = 2 * dim, 4 * (cells.count(row, "moe_experts") // ep * near), 4 * (dim // 128)
  local node = ep * (token + chances + scales)
  local between = far > 0 and token + chances * (far + 1) + scales + far * (3 * (token + chances) + scales) or 0
  return most * (node + between)
end

-- Returns true if another micro-batch computes during exchanges. The cell overlap_ep overrides the
-- recipe. A row that names its own dispatcher does not follow the recipe, so the recipe's overlap
-- does not apply to it.
function m.overlaps_ep(row)
  local told = cells.flag(row, "overlap_ep")
  if told ~= nil then return told end
  return cells.is_open(row.moe_dispatcher) and of(row, "overlap_ep") == "1"
end

-- Returns the fraction of an exchange that lengthens the step although another micro-batch computes
-- meanwhile. At the beginning and the end of a step, nothing can overlap. At other times, the
-- exchange occupies multiprocessors that the kernels then lack.
-- kind: source; Megatron-LM, transformer_config.py (moe_deepep_num_sms, moe_hybridep_num_sms); Megatron-Bridge's recipes
-- (_benchmark_common: 32 for HybridEP); NCCL's thread blocks are assumed to be as many as HybridEP's by default
function m.longer_part(row, n_micro)
  local words, bridge = exchange(row), has(row, "framework", "^megatron%-bridge")
  local taken = words:find "deepep" and 20 or words:find "hybridep" and bridge and 32 or 16
  local gpu = gpus.gpus[gpus.find(row.gpu) or ""]
  local alone = math.max(0.05, 1 / math.max(1, n_micro))
  return alone + (1 - alone) * taken / (gpu and gpu.sms or 132)
end

return m
