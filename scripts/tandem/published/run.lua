-- Turns a row of published training runs into the plan that ran. `tandem accuracy --runs FILE` calls
-- this file with the texts of the row's cells. If the planner lacks a feature, or the row does not
-- state a number, an error of rule published-row gives the reason. The report counts these reasons.
local gpus, cells, megatrons = require "tandem.gpus", require "tandem.published.cells", require "tandem.published.megatron"
local fitted, trainers = require "tandem.fitted", require "tandem.published.trainer"
local recipes, losses = require "tandem.published.recipes", require "tandem.published.loss"
local model, defaults = require "tandem.published.models", require "tandem.published.defaults"
local blocks, releases = require "tandem.published.blocks", require "tandem.published.releases"
local month_of, is_before = releases.month, releases.is_before
local refuse, count, has = cells.refuse, cells.count, cells.has

-- ---- parallelism

-- full: every block is recomputed. (op): torchtitan's policy, which keeps attention and every second product of a
-- block. (layer): every second block is recomputed. A row that recomputes the attention core has no pass, as flash
-- attention does so anyway.
local function some_blocks(row, n)
  local each = (count(row, "n_layers") // count(row, "pp") + n // 2) // n
  return ac { mode = "full", every = each > 1 and each or nil }
end

-- Megatron's modules (--recompute-modules). Norms are small, so they are left out. Flash attention recomputes the attention
-- core anyway. If scores are written and the core is recomputed, the profile keeps no scores. The
-- model of a family has other modules: there, recomputing the products of an MLP stands for recomputing the MLP.
local function some_modules(row)
  local modules, ops = blocks.recomputed(row)
  if modules then return ac { modules = modules, ops = ops } end
  if not row.names_parts and has(row, "ac", "[%(%[ ]mlp") then
    return ac { mode = "full", ops = { "attention", "linear_q", "linear_kv", "linear_o" } }
  end
  return nil
end

local function policy_of_ops(how)
  return ac { mode = "full", ops = how and how.forgets_attention and { "linear" } or { "attention", "linear" }, alternate = true }
end

local function checkpointing(row, how)
  -- "full block 21" recomputes 21 blocks of each stage. The plan has every n-th block in their
  -- place.
  local some = tonumber((row.ac or ""):match "^full block (%d+)" or (row.ac or ""):match "^full %(block, (%d+) layers")
  if some then return some_blocks(row, some) end
  if has(row, "ac", "^full") or cells.switch(row.ac) then return ac "full" end
  if cells.switch(row.ac) == false or has(row, "ac", "^none") then return nil end
  local every = tonumber((row.ac or ""):match "^selective%(layer, every (%d+)")
  if every then return ac { mode = "full", every = every > 1 and every or nil } end
  -- A row may say only "selective". Megatron then recomputes the attention core, and torchtitan
  -- applies its policy of ops.
  local titan = has(row, "framework", "^torchtitan") or has(row, "framework", "torchtune") or has(row, "framework", "vescale")
  if has(row, "ac", "selective%(op%)") or titan and has(row, "ac", "^selective$") then return policy_of_ops(how) end
  if has(row, "ac", "^selective") then return some_modules(row) end
  return nil
end

local is_float8, is_float4 = cells.is_float8, cells.is_float4
local function gathers_bytes(row)
  return is_float8(row) and not has(row, "precision", "rowwise") and not has(row, "precision", "mx") and not has(row, "precision", "bfloat16 all%-gather")
end
-- Returns the dtype of products that are neither in 8 nor in 4 bits. TF32 is fp32 at another rate (published/cluster.lua).
local function half_of(row, how)
  local wide = has(row, "precision", "^t?fp?32") or has(row, "precision", "^float32")
  if wide and not row.precision:gsub("%b()", ""):lower():find "f[lp]?%a*16" then return "fp32" end
  if has(row, "precision", "fp16") or how.half == "fp16" then return "fp16" end
  return "bf16"
end

-- Returns how many ranks share a sequence. In torchtitan they gather keys and values
-- (context_parallel_rotate_method is "allgather" by default). In Ulysses they exchange tokens for
-- heads, and repeat KV heads if these are too few. `goes_around` tells whether the plan uses a ring or,
-- in its place, a gather.
local function sharers(row)
  local n = count(row, "cp")
  if n == 1 and not has(row, "sp", "ulysses [2-9]") and not has(row, "sp", "ulysses 1%d") then return 1 end
  if has(row, "framework", "^torchtitan") then return n end
  -- A ring of Transformer Engine moves as many bytes as a gather of keys and values, and overlaps
  -- as well. But a rank of the ring holds only two parts of them at a time instead of all.
  if not has(row, "sp", "ulysses") then return n end
  local said = math.tointeger(tonumber(row.sp:match "(%d+)")) or n
  -- if there are fewer KV heads than ranks, DeepSpeed repeats them
  if count(row, "n_kv_heads") % said ~= 0 and count(row, "n_heads") % said == 0 then row.n_kv_heads = tostring(said) end
  return said
end

local function copy_of(from)
  local copy = {}
  for key, value in pairs(from) do copy[key] = value end
  return copy
end

local function add(list, pass) if pass then list[#list + 1] = pass end end

-- True if the row's ranks pass keys and values around a ring. Also true if the row does not say how
-- ranks share sequences.
local function is_ring(row)
  return count(row, "cp") > 1 and not has(row, "framework", "^torchtitan") and not has(row, "sp", "ulysses")
end

-- True if the plan also uses a ring. Megatron and NeMo use one by default (cp_comm_type p2p). A plan's ring can
-- compute only plain attention. For other attention, and for other frameworks than NeMo, a gather stands for the ring.
local function goes_around(row)
  if not is_ring(row) then return false end
  local plain = cells.is_open(row.mla) and cells.is_open(row.hybrid_pattern)
  if plain and has(row, "framework", "^nemo") then return true end
  cells.note("a gather of keys and values stands for the ring over cp = %d", count(row, "cp"))
  return false
end

-- Megatron's Mamba mixers also exchange tokens for heads (mamba_context_parallel.py). A plan uses
-- one way for all layers, and cannot exchange tokens for heads of mixers beside tp.
local function trades_heads(row)
  local scans = has(row, "hybrid_pattern", "^[^/]*m") and count(row, "tp") == 1
  return has(row, "sp", "^ulysses") or scans and count(row, "n_kv_heads") % count(row, "cp") == 0
end

local function is_block_float8(row) return not is_float4(row) and (has(row, "precision", "mx") or has(row, "fp8_recipe", "^mx")) end

-- Returns the kind of scales of 8-bit operands. NVFP4 has a scale for 16 elements. Its products are planned
-- with rowwise 8-bit operands at the 4-bit peak (`cluster`), so memory counts twice the bytes of its operands.
-- Blocks of MXFP8 are planned only on GPUs that multiply blocks, and on ranks with whole blocks of tokens.
local function scales_of(row, how)
  if not is_block_float8(row) then return (is_float4(row) or has(row, "precision", "rowwise")) and "rowwise" or "tensorwise" end
  local name = gpus.find(row.gpu)
  local shared, tokens = how.cp or sharers(row), megatrons.tokens(row) // (cells.sequence(row) and count(row, "tp") or 1)
  local known = name and gpus.arch[gpus.gpus[name].arch].block_scales
  if known and (shared == 1 or trades_heads(row)) and tokens // shared % 32 == 0 then return "mxfp8" end
  cells.note("scales of rows stand for the blocks of MXFP8: %s", not known and "the GPU does not multiply blocks" or
    shared > 1 and "ranks share sequences" or "a rank's tokens are not whole blocks")
  return "rowwise"
end

local function eight_bits(row, how)
  if not is_float8(row) and not is_float4(row) then return nil end
  return float8 { recipe = scales_of(row, how), skip_indivisible = true, skip = recipes.tail(row),
    fsdp_gather = how.byte_gather and gathers_bytes(row) or nil }
end

local function micro_batches(row, how)
  local data = (how.mesh.dp_shard or 1) * (how.mesh.dp_replicate or 1) * (how.mesh.ep or 1)
  return count(row, "global_batch_seqs") // ((how.micro or count(row, "micro_batch")) * data)
end

-- Returns the largest number of chunks of a rank, up to `vp`, for which each chunk has experts. A plan adds up the
-- losses of experts from stage to stage and cannot skip a stage. (In Llama 4 Maverick, every second layer has experts.)
local function chunks_with_experts(row, n_pp, vp)
  local period, layers, most = math.tointeger(tonumber(row.moe_layer_freq)), count(row, "n_layers"), vp
  if not period or cells.is_open(row.moe_experts) then return vp end
  while vp > 1 and (most % vp ~= 0 or layers // (n_pp * vp) % period ~= 0) do vp = vp - 1 end
  if vp ~= most then cells.note("%d chunks stand for %d, so that each has experts", vp, most) end
  return vp
end

-- Returns the passes of any framework, in the order that the planner needs.
local function passes(row, how)
  local list, n_tp, n_pp = {}, count(row, "tp"), count(row, "pp")
  if n_pp > 1 then
    local vp, split = count(row, "vp", 1), how.is_megatron and megatrons.split(row) or nil
    local n_micro, own = how.n_micro or micro_batches(row, how), how.is_megatron and vp > 1 and megatrons.schedule(row) or nil
    -- With fewer blocks than stages, or micro-batch groups of another size than pp, one stage a rank stands for it.
    if split and #split ~= n_pp * vp or n_micro % n_pp ~= 0 and not own or not split and count(row, "n_layers") < n_pp * vp then vp = 1 end
    if split and #split ~= n_pp * vp then split = nil end
    vp = chunks_with_experts(row, n_pp, vp)
    add(list, pp { schedule = vp > 1 and (own or "interleaved_1f1b") or "1f1b", chunks = vp > 1 and vp or nil, split = split })
  end
  if n_tp > 1 then add(list, tp { sequence = cells.sequence(row), keep_gathered = how.keep_gathered }) end
  if (how.ep or count(row, "ep", 1)) > 1 then add(list, ep {}) end
  local around = goes_around(row)
  if (how.cp or sharers(row)) > 1 then add(list, cp { mode = trades_heads(row) and "all_to_all" or around and "ring" or "all_gather" }) end
  add(list, eight_bits(row, how))
  if how.pieces and how.pieces > 1 then add(list, tile { pieces = how.pieces }) end
  add(list, how.ac ~= false and checkpointing(row, how) or nil)
  add(list, how.data)
  if row.compile == "yes" and how.compile then add(list, compile(how.compile)) end
  return list
end

local function ranks(row)
  local n, n_tp, n_pp, n_cp = count(row, "n_gpus"), count(row, "tp"), count(row, "pp"), sharers(row)
  if n % (n_tp * n_pp * n_cp) ~= 0 then
    refuse("%d GPUs do not divide over tp %d x pp %d%s", n, n_tp, n_pp, n_cp > 1 and (" x cp %d"):format(n_cp) or "")
  end
  return n // (n_tp * n_pp * n_cp)
end

-- Puts all ranks with different samples on the axis that shards weights. If the row names shards
-- and replicas, each gets its own axis.
local function mesh(row, sharded)
  local own = ranks(row)
  local ep = megatrons.common_divisor(own, count(row, "ep", 1))
  if ep ~= count(row, "ep", 1) then
    cells.note("experts over ep = %d extend over tp or cp; %d ranks with different samples stand for them", count(row, "ep"), ep)
    row.ep = tostring(ep)
  end
  local data = own // ep
  local shard, replicate = tonumber(row.dp_shard), tonumber(row.dp_replicate)
  local axes = { pp = count(row, "pp"), tp = count(row, "tp"), cp = sharers(row), ep = ep > 1 and ep or nil }
  if not sharded then
    axes.dp_replicate = data
  elseif shard and replicate and shard * replicate == data then
    axes.dp_shard, axes.dp_replicate = math.tointeger(shard), math.tointeger(replicate)
  else
    axes.dp_shard = data
  end
  return axes
end

local m = {}

m.cluster = require "tandem.published.cluster"

-- ---- frameworks, chosen by the beginning of the cell `framework`

-- Returns the micro-batch of an old torchtitan; nil: the row's cell counts. It had a local batch and a number of micro-batches
-- (pipeline_parallel_microbatches): by default the number of pipeline ranks, since #781 (January 2025) that of stages.
local function micro_of(row)
  if count(row, "pp") == 1 or not is_before(row, "2025-04") then return nil end
  local pieces = count(row, "pp") * (is_before(row, "2025-01") and 1 or count(row, "vp", 1))
  local own = count(row, "global_batch_seqs") // ranks(row)
  if own % pieces ~= 0 then refuse("a local batch of %d is not cut into %d micro-batches", own, pieces) end
  return own // pieces
end

-- Returns the pass for ranks with different samples. In torchtitan, stage 2 keeps gathered weights for the backward
-- pass (reshard_after_forward=False: docs/fsdp.md), and this is the default under pp. In a row of stage 0, every rank
-- has all weights.
local function titan_data(row, stage)
  if stage == 0 then return ddp {} end
  if stage == 1 then refuse("%s shards weights, so its ZeRO stage 1 is not modelled", row.framework) end
  local staged = count(row, "pp") > 1
  return fsdp2 { copy = not gathers_bytes(row), reshard_after_forward = not staged and stage ~= 2, keep_gathered = staged or nil }
end

-- Since May 2025, torchtitan calls cuDNN's attention on Blackwell (#1196), and since October on all GPUs
-- (#1776). Until December, its list of kept ops named only the other kernels (#2095), so cuDNN's
-- attention is recomputed. This is also assumed on Blackwell if the row does not state its month. Other frameworks that
-- take torchtitan's profile leave the choice to PyTorch.
local function torchtitan(row)
  local data, stage = ranks(row) * sharers(row), cells.stage(row)
  local gpu = gpus.gpus[gpus.find(row.gpu)]
  local arch, month = gpu and gpu.arch, month_of(row)
  local lists = has(row, "framework", "^torchtitan")
  local forgets = lists and month and month < "2025-12" and (arch == "Hopper" and month >= "2025-10" or arch == "Blackwell" and month >= "2025-05")
    or lists and not month and arch == "Blackwell"
  local old = is_before(row, "2025-04")  -- since #1033, the loss is compiled, too
  local runtime = not old and "torchtitan" or count(row, "tp") > 1 and "torchtitan2024_tp" or "torchtitan2024"
  -- cuDNN's kernel computes only in 16 bits
  local flash = (arch == "Hopper" or arch == "Blackwell" and not lists) and
    (lists and is_before(row, "2025-10") or not lists and releases.prefers_flash(row) or half_of(row, {}) == "fp32")
  return { forgets_attention = forgets, attention = flash and "flash2" or nil, runtime = runtime, mesh = mesh(row, stage ~= 0), byte_gather = stage ~= 0,
    compile = "block", keep_gathered = true, micro = micro_of(row), data = data > 1 and titan_data(row, stage) or nil }
end

-- Returns the number of sequences of a step. If the row does not give it, it is computed from the tokens per second. A
-- run that ran out of memory has none. For mixtures of experts, the script of the measurement takes micro-batches until
-- each rank has 8 sequences (benchmarks/moe_expert_parallel/moe_ep_bench.sh).
local function kempnerforge_batch(row, at_once)
  if not cells.is_open(row.global_batch_seqs) then return count(row, "global_batch_seqs") end
  local rate, step_s = tonumber(row.tokens_per_s_per_gpu), tonumber(row.step_time_s)
  local micro = count(row, "micro_batch")
  local pieces = rate and step_s and rate * count(row, "n_gpus") * step_s / count(row, "seq") / at_once or 8 // micro
  return math.max(1, math.floor(pieces + .5)) * at_once
end

-- Turns the row into KempnerForge's own configuration, from which the dialect makes the plan.
local function kempnerforge(row)
  local ep = count(row, "ep", 1)
  local data, at = ranks(row) // ep, mesh(row, true)
  local micro = count(row, "micro_batch")
  local steps = kempnerforge_batch(row, micro * data)
  if steps % (micro * data) ~= 0 then refuse("the batch is not a multiple of micro-batch x data ranks") end
  local own = require "dialects.kempnerforge" {
    cluster = m.cluster(row),
    model = { dim = count(row, "d_model"), n_layers = count(row, "n_layers"), n_heads = count(row, "n_heads"),
      n_kv_heads = count(row, "n_kv_heads"), ffn_hidden_dim = count(row, "d_ff"), vocab_size = count(row, "vocab"),
      max_seq_len = count(row, "seq"), num_experts = row.moe_experts ~= "" and count(row, "moe_experts") or 0,
      -- KempnerForge drops no token. In its products, every expert gets as many rows as the fullest
      -- expert has. No row gives that number, so the number of all tokens is assumed: before
      -- training, most tokens choose the same experts.
      moe_top_k = row.moe_topk ~= "" and count(row, "moe_topk") or nil },
    distributed = { dp_shard = at.dp_shard, dp_replicate = at.dp_replicate, ep = ep, tp = at.tp, pp = at.pp },
    train = { batch_size = micro, seq_len = count(row, "seq"), grad_accum_steps = steps // (micro * data),
      compile_model = row.compile == "yes", activation_checkpointing = (row.ac == "full" or row.ac == "selective") and row.ac or "none" },
  }
  if row.ac ~= "selective" then checkpointing(row) end -- only its errors count
  for _, pass in ipairs(own.parallel) do
    local shards = pass.reshard_after_forward ~= nil or pass.keep_gathered ~= nil or pass.reshard_root ~= nil
    if shards and not pass.plan then pass.copy = true end  -- a pass with `plan` is tp{}, which has no such option
  end
  -- FSDP does not wrap a single device, so gradients have the parameters' dtype. Under tp it wraps even a single rank.
  if count(row, "n_gpus") == 1 then own.precision.reduce = "bf16" end
  own.name, own.runtime = row.id, row.moe_experts ~= "" and "kempnerforge_experts" or "kempnerforge"
  return { plan = own }
end

-- composer's FSDP1 with mixed precision PURE reduces gradients in bf16.
local function foundry(row)
  return { runtime = "fsdp1", mesh = mesh(row, true), reduce = "bf16",
    data = fsdp2 { reshard_after_forward = cells.stage(row) ~= 2 } }
end

local function fms(row)
  return { runtime = "fms", mesh = mesh(row, true), reduce = "bf16", data = fsdp2 {}, compile = "block" }
end

local zero_names = { "optim", "optim_grads", "optim_grads_params" }

-- Returns false if products wait for this communication of the distributed optimizer; nil: they do not.
local function waits(row, stage, key)
  if stage ~= 1 or cells.flag(row, key) ~= false then return nil end
  return false
end

-- Megatron's distributed optimizer shards over the ranks of dp x cp, which hold the same weights. ZeRO
-- stages 2 and 3 are those of Megatron-FSDP (--data-parallel-sharding-strategy). LoRA (of NeMo and
-- Megatron-Bridge) keeps the base in 16 bits, without gradients.
local function megatron(row)
  local stage = cells.stage(row) or 0
  local lora = cells.is_lora(row)
  if lora then stage = 0 end
  local at = megatrons.place(row, ranks(row), sharers(row))
  local half = recipes.half_gradients(row) -- without such a recipe, fp32 as in Megatron-LM
  local told = cells.flag(row, "grad_reduce_in_bf16")
  if told ~= nil then half = told end
  local axes = { pp = count(row, "pp"), tp = count(row, "tp"), cp = at.cp, ep = at.ep > 1 and at.ep or nil }
  axes.ep_mode = at.folded and "folded" or nil
  axes[stage > 0 and "dp_shard" or "dp_replicate"] = at.folded and at.data or at.data // at.ep
  local shared, n_cp = at.data * at.cp, sharers(row)
  local names = not cells.is_open(row.transformer_impl) or not cells.is_open(row.attention_backend)
  local how = { runtime = "megatron", is_megatron = true, lora = lora, param = lora and "bf16" or nil,
    ops = names and megatrons.ops(row) or nil, scores = names and megatrons.writes_scores(row), micro = at.micro, ep = at.ep, cp = at.cp,
    n_micro = count(row, "global_batch_seqs") // (at.micro * at.data), ring = at.cp < n_cp and n_cp or nil,
    reduce = half and "bf16" or nil, mesh = axes,
    data = shared > 1 and (stage == 0 and (at.ep > 1 and zero { strategy = "no_shard" } or ddp {})
      or zero { strategy = zero_names[stage], grad_reduce_in_fp32 = stage == 1 and not half or nil,
        overlap_grad_reduce = waits(row, stage, "overlap_grad_reduce"), overlap_param_gather = waits(row, stage, "overlap_param_gather") }) or nil }
  if not how.data and at.ep > 1 then how.data = zero { strategy = "no_shard" } end
  return how
end

-- Megatron-LM of 2021 and 2022 wrote scores to memory. Its core brought flash attention in 2023.
local function megatron_lm(row)
  local how = megatron(row)
  how.runtime = is_before(row, "2023-01") and "megatron2022" or "megatron_core"
  return how
end

-- A row without a ZeRO stage is assumed to use plain data parallelism (as the rows of vTrain). The
-- vocabulary is padded as in Megatron, to a multiple of 128 times tp.
local function megatron_deepspeed(row)
  local stage, data = cells.stage(row) or 0, ranks(row)
  local multiple = 128 * count(row, "tp")
  local year = row.framework:match "20%d%d"
  local flash = has(row, "framework", "flash") or has(row, "flag", "flash") or has(row, "attention_backend", "flash")
  return { runtime = (flash or year and tonumber(year) >= 2024) and "megatron_core" or "megatron2022", mesh = mesh(row, stage > 0), vocab = -(-count(row, "vocab") // multiple) * multiple,
    data = data > 1 and (stage == 0 and ddp {} or zero(zero_names[stage])) or nil }
end

local function deepspeed(row)
  local liger = has(row, "framework", "liger") or has(row, "peak_mem_kind", "liger")
  local stage = cells.stage(row) or 0
  return { runtime = liger and "deepspeed_liger" or "deepspeed", mesh = mesh(row, stage > 0), reduce = "bf16",
    data = ranks(row) > 1 and (stage == 0 and ddp {} or zero(zero_names[stage])) or nil,
    host_optimizer = row.offload == "optimizer" or cells.offloads(row) == "optimizer", pieces = liger and trainers.liger_pieces(row) or nil }
end

-- NeMo Automodel: weights and moments are bf16, as in Hugging Face's configurations. Gradients are
-- summed in fp32. Liger's kernels are used, except under tensor parallelism.
local function automodel(row)
  local staged = count(row, "pp") > 1
  return { runtime = count(row, "tp") > 1 and "automodel_tp" or "automodel", mesh = mesh(row, true), param = "bf16",
    byte_gather = true, compile = "block",
    data = ranks(row) > 1 and fsdp2 { copy = not gathers_bytes(row), reshard_after_forward = not staged } or nil }
end

-- nanotron: bf16 weights, gradients summed in fp32, ZeRO-1 (optim/zero.py), FlashAttention-2.
-- InternEvo has the same states, and the parallelism of Megatron (core/parallel).
local function nanotron(row)
  local how = megatron(row)
  how.runtime, how.is_megatron = "nanotron", nil
  return how
end

local function colossal(row)
  cells.note("framework %s has no profile; nanotron's stands for it", row.framework)
  return nanotron(row)
end

-- MaxText: weights are sharded as in FSDP, and XLA compiles the whole model.
local function maxtext(row)
  row.compile = "yes"
  return { runtime = "maxtext", mesh = mesh(row, true), compile = "model", data = ranks(row) > 1 and fsdp2 {} or nil }
end

-- Hugging Face's Trainer: one GPU, DDP, or FSDP1 through accelerate. Weights and moments keep the dtype
-- in which the model was loaded.
local function trainer(row)
  local stage, data, lora = cells.stage(row) or 0, ranks(row), cells.is_lora(row)
  local pure = lora or has(row, "precision", "pure") or has(row, "precision", "autocast")
  local runtime, ops, pieces = trainers.trainer(row)
  return { runtime = runtime, mesh = mesh(row, stage > 0), lora = lora, ops = ops, pieces = pieces,
    param = pure and "bf16" or nil, reduce = pure and "bf16" or nil,
    data = data > 1 and (stage > 0 and fsdp2 { reshard_after_forward = stage == 3 } or ddp {}) or nil }
end

local frameworks = {
  { "automodel", automodel }, { "^torchtitan", torchtitan }, { "^kempnerforge", kempnerforge }, { "^composer", foundry },
  { "^pytorch fsdp1", fms }, { "^megatron%-deepspeed", megatron_deepspeed }, { "^megatron%-lm", megatron_lm },
  { "^megatron%-core", megatron_lm }, { "^megatron", megatron }, { "^nemo", megatron }, { "^deepspeed", deepspeed }, { "^xtuner", deepspeed },
  { "nanotron", nanotron }, { "internevo", nanotron }, { "maxtext", maxtext }, { "neox", megatron_deepspeed },
  { "llm%-foundry", foundry }, { "deepspeed", deepspeed },
  { "fsdp2", torchtitan }, { "torchtune", torchtitan }, { "vescale", torchtitan }, { "colossal", colossal },
  { "hf trainer", trainer }, { "^hf", trainer }, { "hugging ?face", trainer }, { "accelerate", trainer }, { "transformers", trainer },
  { "axolotl", trainer }, { "lightning", trainer }, { "llama%-factory", trainer },
  -- Submitters to MLPerf name NVIDIA's and AMD's containers, which hold NeMo and Megatron.
  { "nemo", megatron }, { "^nvidia", megatron }, { "nvidia release", megatron }, { "rocm", megatron }, { "^llmboost", megatron },
}

-- Returns the profile with the row's changes. If the attention core is recomputed, attention saves no scores.
local function profile(row, how)
  local own = copy_of(require("runtimes." .. how.runtime))
  own.host_optimizer, own.frozen_base = how.host_optimizer, how.lora or nil
  local slower = how.runtime == "megatron_core" and gpus.host_factor(gpus.find(row.gpu) or "H100-SXM5-80GB") or 1
  if how.runtime == "megatron" and megatrons.runs_modules(row) then
    own.kernel_s, own.tensor_s = fitted.megatron_core.kernel_s, fitted.megatron_core.tensor_s
    slower = gpus.host_factor(gpus.find(row.gpu))
  end
  own.host_factor = slower
  own.attention = how.attention or own.attention
  -- A profile names the rank whose log counts. The memory of a process comes from another tool, which sees all ranks.
  if has(row, "peak_mem_kind", "^process") then own.reports_rank = "most" end
  own.workspace_bytes = how.is_megatron and megatrons.workspace(row) or nil
  own.library_bytes = how.is_megatron and megatrons.library(row, gpus.gpus[gpus.find(row.gpu) or ""]) or nil
  if how.lora and is_float8(row) then own.ops = megatrons.keeps_bytes(row, own.ops) end
  -- NVFP4: 4 bits for each number, and 8 for the scale of 16 numbers (Transformer Engine, common/recipe: NVFP4BlockScaling).
  if is_float4(row) then own.quantised_bytes = 9 / 16 end
  if how.is_megatron then
    own.overlaps_tp, own.input_s = megatrons.overlaps(row), tonumber(row.input_s)
    own.exchange_part = megatrons.exchange_part(row, how.per_node, how.n_micro, how.mesh.ep_mode ~= nil)
    own.own_exchange, own.offloaded_blocks = recipes.is_flex(row) or nil, tonumber(row.offloaded_blocks)
    megatrons.graph(row, own)
    if not how.lora then megatrons.gradients(row, own) end
    losses.changes(row, own, how, tonumber(row.deferral_limit))
    own.attention = megatrons.attention(row, month_of(row)) or own.attention
  end
  own.attention = releases.attention(row) or own.attention
  if how.scores then own.attention = "unfused" end
  own.ops = copy_of(own.ops)
  for name, op in pairs(how.ops or {}) do own.ops[name] = op end
  if how.is_megatron then
    blocks.attention_ops(row, own.ops)
    blocks.norm_ops(row, own.ops)
    blocks.mlp_ops(row, own.ops)
    if not how.lora then blocks.expert_ops(row, own.ops) end
    if not how.lora and cells.stage(row) == 1 then blocks.optimizer(row, own, how.reduce == "bf16", recipes.moments(row)) end
  end
  if how.ring then megatrons.adds_ring(own.ops, how.ring) end
  if has(row, "ac", "^selective%(.*core_attn") and own.ops.attention ~= nil then
    own.ops.attention = copy_of(own.ops.attention)
    own.ops.attention.scores = 0
  end
  return own
end

local function framework(row)
  for _, known in ipairs(frameworks) do
    if has(row, "framework", known[1]) then
      return known[2](row)
    end
  end
  -- For an unknown framework: torchtitan's profile if all weights are sharded, otherwise Megatron's.
  local sharded = (cells.stage(row) == 3 or has(row, "framework", "fsdp") and cells.stage(row) == 2) and count(row, "pp") == 1
  cells.note("framework %s is not known; the profile of %s stands for it", row.framework, sharded and "torchtitan" or "Megatron")
  return (sharded and torchtitan or megatron)(row)
end

function m.plan(row)
  if has(row, "framework", "qlora") or has(row, "model", "qlora") or has(row, "flag", "qlora") then refuse("a frozen base in 4 bits (QLoRA) is not modelled") end
  defaults.fill(row)
  local how, cluster = framework(row), m.cluster(row)
  how.per_node = cluster.devices_per_node
  if how.plan then return how.plan end
  local off = cells.offloads(row)
  if off == "parameters" then refuse("offload to host memory (parameters) is not modelled for this framework") end
  if off == "activations" then cells.note("activations that the row offloads to host memory stay on the device") end
  if off == "optimizer" and not how.host_optimizer then
    how.host_optimizer = true
    cells.untimed("the host's update of the offloaded optimizer")
  end
  local half = half_of(row, how)
  if not cells.is_open(row.optimizer) and not cells.is_adam(row) then cells.note("AdamW stands for %s", row.optimizer) end
  return plan {
    name = row.id, runtime = profile(row, how), model = model(row, how), cluster = cluster, mesh = how.mesh,
    batch = { global = count(row, "global_batch_seqs"), micro = how.micro or count(row, "micro_batch"), seq = megatrons.tokens(row) },
    parallel = passes(row, how),
    precision = { param = how.param or "fp32", compute = half, reduce = how.reduce or "fp32" },
    optimizer = adamw { state = recipes.moments(row) },
  }
end

return m
