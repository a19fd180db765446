-- Turns a row of published training runs into the plan that ran. `tandem accuracy --runs FILE`
-- calls this file with the texts of the row's cells. Empty cells are left out. If the planner lacks
-- a feature, or the row does not state a number, an error of rule published-row gives the reason,
-- and the report counts these reasons.
local gpus, cells, megatrons = require "tandem.gpus", require "tandem.published.cells", require "tandem.published.megatron"
local fitted, trainers = require "tandem.fitted", require "tandem.published.trainer"
local recipes, losses = require "tandem.published.recipes", require "tandem.published.loss"
local model, defaults = require "tandem.published.models", require "tandem.published.defaults"
local blocks, releases = require "tandem.published.blocks", require "tandem.published.releases"
local passes, synonyms = require "tandem.published.passes", require "tandem.published.synonyms"
local axes, deepspeeds = require "tandem.published.frameworks.axes", require "tandem.published.frameworks.deepspeed"
local ranks, mesh, deepspeed, megatron_deepspeed = axes.ranks, axes.mesh, deepspeeds.deepspeed, deepspeeds.megatron_deepspeed
local unprofiled, scores = require "tandem.published.frameworks.unprofiled", require "tandem.published.frameworks.written_scores"
local left_out, parts = require "tandem.published.read.left_out", require "tandem.published.read.parts"
local month_of, is_before = releases.month, releases.is_before
local refuse, count, has = cells.refuse, cells.count, cells.has

local is_float8, is_float4 = cells.is_float8, cells.is_float4
local sharers, checkpointing, gathers_bytes = passes.sharers, passes.checkpointing, passes.gathers_bytes

local function copy_of(from)
  local copy = {}
  for key, value in pairs(from) do copy[key] = value end
  return copy
end

local m = {}

m.cluster = require "tandem.published.cluster"

-- ---- frameworks, chosen by the beginning of the cell `framework`

-- Returns the micro-batch of a pipeline in torchtitan, or nil if the row's own cell is right. Old
-- torchtitan cut a local batch into a number of micro-batches (pipeline_parallel_microbatches). The
-- default was the number of pipeline ranks and, since #781 (January 2025), the number of stages.
-- Since April 2025, the size of a micro-batch is an option, and its default is one sequence
-- (pipeline_parallel_microbatch_size). A cell that leaves no second micro-batch gives the local batch.
local function micro_of(row)
  if count(row, "pp") == 1 then return nil end
  local own = count(row, "global_batch_seqs") // ranks(row)
  if not is_before(row, "2025-04") then return has(row, "framework", "^torchtitan") and own == count(row, "micro_batch") and 1 or nil end
  local pieces = count(row, "pp") * (is_before(row, "2025-01") and 1 or count(row, "vp", 1))
  if own % pieces ~= 0 then refuse("a local batch of %d is not cut into %d micro-batches", own, pieces) end
  return own // pieces
end

local function is_titan(row) return has(row, "framework", "torchtitan") or has(row, "framework", "vescale") or has(row, "framework", "torchtune") end

-- Returns the pass for the data ranks. In torchtitan, stage 2 keeps gathered weights for the
-- backward pass (reshard_after_forward=False: docs/fsdp.md), and this is the default under pp. In
-- stage 0, every rank has all weights.
local function titan_data(row, stage)
  if stage == 0 then return ddp {} end
  if stage == 1 and is_titan(row) then refuse("%s shards weights, so its ZeRO stage 1 is not modelled", row.framework) end
  if stage == 1 then return zero "optim" end
  local staged = count(row, "pp") > 1
  return fsdp2 { copy = not gathers_bytes(row), reshard_after_forward = not staged and stage ~= 2, keep_gathered = staged or nil, pipeline_stage = staged or nil }
end

-- Since May 2025, torchtitan calls cuDNN's attention on Blackwell (#1196), and since October 2025
-- on all GPUs (#1776). Until December 2025, the list of ops that its selective recomputation keeps
-- did not name that kernel (#2095), so the output of cuDNN's attention is recomputed
-- (`forgets_attention`). On Blackwell, this is also assumed if the row does not state its month.
-- Other frameworks that use torchtitan's profile leave the choice of the kernel to PyTorch.
local function torchtitan(row)
  local data, stage = ranks(row) * sharers(row), cells.stage(row)
  local gpu = gpus.gpus[gpus.find(row.gpu)]
  local arch, month = gpu and gpu.arch, month_of(row)
  local lists = has(row, "framework", "^torchtitan")
  local forgets = lists and month and month < "2025-12" and (arch == "Hopper" and month >= "2025-10" or arch == "Blackwell" and month >= "2025-05")
    or lists and not month and arch == "Blackwell"
  local old = is_before(row, "2025-04")  -- before #1033, the loss was not compiled
  local runtime = not old and "torchtitan" or count(row, "tp") > 1 and "torchtitan2024_tp" or "torchtitan2024"
  -- cuDNN's kernel computes only in 16 bits
  local flash = (arch == "Hopper" or arch == "Blackwell" and not lists) and
    (lists and is_before(row, "2025-10") or not lists and releases.prefers_flash(row) or passes.half_of(row, {}) == "fp32")
  -- torchtune keeps weights, gradients and states in the type of the row (training.set_default_dtype in its recipes)
  local kept = has(row, "framework", "torchtune") and passes.half_of(row, {})
  local pure = kept and kept ~= "fp32" and kept or nil
  local how = { forgets_attention = forgets, param = pure, reduce = pure, attention = flash and "flash2" or nil, runtime = runtime, mesh = mesh(row, stage ~= 0), byte_gather = stage ~= 0,
    compile = "block", keep_gathered = true, micro = micro_of(row), data = data > 1 and titan_data(row, stage) or nil }
  return scores.are_stated(row) and scores.write(row, how) or how
end

-- Returns the number of sequences of a step. If the row does not state it, it is computed from the
-- tokens per second and the step time. A run that ran out of memory states neither. Then each rank
-- has 8 sequences, as in the script that measured mixtures of experts
-- (benchmarks/moe_expert_parallel/moe_ep_bench.sh).
local function kempnerforge_batch(row, at_once)
  if not cells.is_open(row.global_batch_seqs) then return count(row, "global_batch_seqs") end
  local rate, step_s = cells.number(row, "tokens_per_s_per_gpu"), cells.seconds(row)
  local micro = count(row, "micro_batch")
  local pieces = rate and step_s and rate * count(row, "n_gpus") * step_s / count(row, "seq") / at_once or 8 // micro
  return math.max(1, math.floor(pieces + .5)) * at_once
end

-- Turns the row into KempnerForge's own configuration, from which the dialect makes the plan.
local function kempnerforge(row)
  local ep, stage = count(row, "ep", 1), cells.stage(row)
  local other = parts.other(row)
  if other then refuse("KempnerForge's model has no such %s: %s", other, row[other]) end
  if stage == 1 or stage == 2 then refuse("KempnerForge shards weights, so its ZeRO stage %d is not modelled", stage) end
  local data, at = ranks(row) // ep, mesh(row, stage ~= 0)
  local micro = count(row, "micro_batch")
  local steps = kempnerforge_batch(row, micro * data)
  if steps % (micro * data) ~= 0 then refuse("the batch is not a multiple of micro-batch x data ranks") end
  local own = require "dialects.kempnerforge" {
    cluster = m.cluster(row),
    model = { dim = count(row, "d_model"), n_layers = count(row, "n_layers"), n_heads = count(row, "n_heads"),
      n_kv_heads = count(row, "n_kv_heads"), ffn_hidden_dim = count(row, "d_ff"), vocab_size = count(row, "vocab"),
      max_seq_len = count(row, "seq"), num_experts = not cells.is_open(row.moe_experts) and count(row, "moe_experts") or 0,
      -- KempnerForge drops no token. In its products, every expert gets as many rows as the expert
      -- with the most tokens. No row states that number, so the number of all tokens is assumed:
      -- before training, most tokens choose the same experts.
      moe_top_k = not cells.is_open(row.moe_topk) and count(row, "moe_topk") or nil },
    distributed = { dp_shard = at.dp_shard, dp_replicate = at.dp_replicate, ep = ep, tp = at.tp, pp = at.pp },
    train = { batch_size = micro, seq_len = count(row, "seq"), grad_accum_steps = steps // (micro * data),
      compile_model = row.compile == "yes", activation_checkpointing = (row.ac == "full" or row.ac == "selective") and row.ac or "none" },
  }
  if row.ac ~= "selective" then checkpointing(row) end -- called only for its errors
  -- Under pp, train.py reshards after each forward pass.
  for _, pass in ipairs(own.parallel) do
    local shards = pass.reshard_after_forward ~= nil or pass.keep_gathered ~= nil or pass.reshard_root ~= nil
    if shards and not pass.plan then pass.copy = true end  -- a pass with `plan` is tp{}, which has no such option
    if pass.copy and pass.keep_gathered then pass.keep_gathered, pass.reshard_after_forward, pass.reshard_root, pass.pipeline_stage = nil, true, true, true end
  end
  -- FSDP does not wrap a model on a single device, so gradients have the parameters' dtype. Under
  -- tp it wraps the model even on a single rank.
  if count(row, "n_gpus") == 1 then own.precision.reduce = "bf16" end
  own.name, own.runtime = row.id, not cells.is_open(row.moe_experts) and "kempnerforge_experts" or "kempnerforge"
  return { plan = own }
end

-- Returns the mesh and the data pass of a framework that shards weights by default. Stage 0 copies
-- all states, stage 1 shards the optimizer, and stage 2 keeps gathered weights for the backward pass.
-- options: those of fsdp2{} in stage 3
local function by_stage(row, options)
  local stage = cells.stage(row) or 3
  if stage == 0 and ranks(row) * sharers(row) > 1 then return mesh(row, false), ddp {} end
  if stage == 1 and ranks(row) * sharers(row) > 1 then return mesh(row, true), zero "optim" end
  local own = copy_of(options or {})
  if stage == 2 then own.reshard_after_forward = false end
  return mesh(row, true), fsdp2(own)
end

-- composer's FSDP1 with mixed precision PURE reduces gradients in bf16.
local function foundry(row)
  local axes, data = by_stage(row)
  return { runtime = "fsdp1", mesh = axes, reduce = "bf16", data = data }
end

local function fms(row)
  local axes, data = by_stage(row)
  return { runtime = "fms", mesh = axes, reduce = "bf16", data = data, compile = "block" }
end

local zero_names = { "optim", "optim_grads", "optim_grads_params" }

-- Returns the value of the option `key` of zero{}: false if the row says that products wait for
-- this communication of gradients or weights, otherwise nil, the default. In stage 0, no weights
-- are gathered. Megatron-FSDP (stages 2 and 3) never waits.
local function waits(row, stage, key)
  if cells.flag(row, key) ~= false or stage == 0 and key == "overlap_param_gather" then return nil end
  if stage > 1 then cells.note("%s = %s is left out: ZeRO stage %d overlaps", key, row[key], stage) return nil end
  return false
end

-- Returns the data pass of a Megatron run that shards no states. Without overlap, all gradients
-- form one bucket (core/distributed/distributed_data_parallel.py).
local function unsharded(row, ep)
  if waits(row, 0, "overlap_grad_reduce") == false then return zero { strategy = "no_shard", overlap_grad_reduce = false, bucket_size = 1 << 50 } end
  return ep > 1 and zero { strategy = "no_shard" } or ddp {}
end

-- Returns the number of ranks over which states or weights are sharded: all `data` ranks, unless
-- the row states a smaller group. Megatron calls the number of such groups
-- num_distributed_optimizer_instances.
local function shards_of(row, data)
  local instances, shard = count(row, "num_distopt_instances", 1), count(row, "dp_shard", data)
  if instances > 1 and data % instances == 0 then return data // instances end
  if instances > 1 then cells.note("%d instances of the optimizer do not divide %d ranks; one is planned", instances, data) end
  local replicate = count(row, "dp_replicate", data // math.min(shard, data))
  if cells.is_open(row.dp_shard) and not row.directions and replicate < data and data % replicate == 0 then return data // replicate end
  return shard < data and data % shard == 0 and shard > 1 and shard * replicate == data and shard or data
end

-- Returns the stage that is planned. Only Megatron-FSDP reduces the gradients of stage 2 after each
-- micro-batch of a pipeline. Other frameworks with a pipeline reduce them after the last micro-batch of a
-- step (MegaScale, arXiv 2402.15627, 3.2) or of a chunk (Llama 3, arXiv 2407.21783, 3.3.2), so stage 1 is
-- planned.
local function once_a_step(row, stage)
  local native = false
  for _, name in ipairs { "^megatron%-lm", "^megatron%-core", "^megatron%-bridge", "^megatron%-fsdp", "^nemo", "nvidia" } do native = native or has(row, "framework", name) end
  if stage ~= 2 or native or count(row, "pp") == 1 then return stage end
  cells.note("ZeRO stage 2 with a pipeline is planned as stage 1, whose gradients are reduced once a step")
  return 1
end

-- Megatron's distributed optimizer shards over the ranks of dp x cp, which hold the same weights.
-- ZeRO stages 2 and 3 are those of Megatron-FSDP (--data-parallel-sharding-strategy). LoRA (of NeMo
-- and Megatron-Bridge) keeps the base in 16 bits, without gradients.
local function megatron(row)
  local stage = once_a_step(row, cells.stage(row) or 0)
  local lora = cells.is_lora(row)
  if lora then stage = 0 end
  local at = megatrons.place(row, ranks(row), sharers(row))
  local half = recipes.half_gradients(row) -- otherwise gradients are fp32, as in Megatron-LM
  local told = cells.flag(row, "grad_reduce_in_bf16")
  if told ~= nil then half = told end
  local axes = { pp = count(row, "pp"), tp = count(row, "tp"), cp = at.cp, ep = at.ep > 1 and at.ep or nil }
  axes.ep_mode = at.folded and "folded" or nil
  local own = at.folded and at.data or at.data // at.ep
  if stage > 0 then
    axes.dp_shard = shards_of(row, own)
    if axes.dp_shard < own then axes.dp_replicate = own // axes.dp_shard end
  else
    axes.dp_replicate = own
  end
  local shared, n_cp = at.data * at.cp, sharers(row)
  megatrons.name_old_kernel(row)
  local names = not cells.is_open(row.transformer_impl) or not cells.is_open(row.attention_backend) or not cells.is_open(row.hidden_dropout) or not cells.is_open(row.attention_dropout)
  local how = { runtime = "megatron", is_megatron = true, lora = lora, param = lora and "bf16" or nil,
    ops = names and megatrons.ops(row) or nil, scores = names and megatrons.writes_scores(row), micro = at.micro, ep = at.ep, cp = at.cp,
    n_micro = count(row, "global_batch_seqs") // (at.micro * at.data), ring = at.cp < n_cp and n_cp or nil,
    reduce = half and "bf16" or nil, mesh = axes,
    data = shared > 1 and (stage == 0 and unsharded(row, at.ep)
      or zero { strategy = zero_names[stage], grad_reduce_in_fp32 = stage == 1 and not half or nil,
        overlap_grad_reduce = waits(row, stage, "overlap_grad_reduce"), overlap_param_gather = waits(row, stage, "overlap_param_gather") }) or nil }
  if not how.data and at.ep > 1 then how.data = zero { strategy = "no_shard" } end
  return how
end

-- Megatron-LM of 2021 and 2022 wrote attention's scores to memory. Megatron-Core, of 2023, brought
-- flash attention.
local function megatron_lm(row)
  local how = megatron(row)
  how.runtime = is_before(row, "2023-01") and "megatron2022" or "megatron_core"
  return how
end

-- XTuner V1 shards with PyTorch's FSDP2; older releases call DeepSpeed. Releases before V1 have numbers 0.1 and 0.2.
local function xtuner(row)
  local new = has(row, "framework", "xtuner[%s_/-]*v?[1-9]") or has(row, "framework", "fsdp")
  return (new and torchtitan or deepspeed)(row)
end

-- NeMo Automodel: weights and moments are bf16, as in Hugging Face's configurations. Gradients are
-- summed in fp32. Liger's kernels are used, except under tensor parallelism.
local function automodel(row)
  local axes, data = by_stage(row, { copy = not gathers_bytes(row), reshard_after_forward = count(row, "pp") == 1 })
  return { runtime = count(row, "tp") > 1 and "automodel_tp" or "automodel", mesh = axes, param = "bf16",
    byte_gather = cells.stage(row) ~= 0, compile = "block", data = ranks(row) * sharers(row) > 1 and data or nil }
end

-- nanotron: bf16 weights, gradients summed in fp32, ZeRO-1 (optim/zero.py), FlashAttention-2.
-- InternEvo has the same states, and the parallelism of Megatron (core/parallel).
local function nanotron(row)
  local how = megatron(row)
  how.runtime, how.is_megatron = "nanotron", nil
  return how
end

-- Returns a function for frameworks without a profile, which get the plan of a related one, and a note.
local function like(own, whose)
  return function(row)
    cells.note("framework %s has no profile; %s is used", row.framework, whose)
    return own(row)
  end
end

local colossal = like(nanotron, "nanotron's")

-- MaxText: weights are sharded as in FSDP, and XLA compiles the whole model.
local function maxtext(row)
  row.compile = "yes"
  local axes, data = by_stage(row)
  return { runtime = "maxtext", mesh = axes, compile = "model", data = ranks(row) * sharers(row) > 1 and data or nil }
end

-- Levanter, EasyLM and others: JAX programs that shard weights like MaxText.
local jax = like(maxtext, "MaxText's")

-- OLMo: PyTorch's FSDP1, gradients reduced in fp32 (configs of the 7B; olmo/config.py: FSDPConfig). OLMo-core calls FSDP2.
local function olmo(row)
  cells.note("framework %s has no profile; that of PyTorch's FSDP is used", row.framework)
  if has(row, "framework", "olmo[%s_-]*core") then return torchtitan(row) end
  local how = fms(row)
  how.reduce = nil
  return how
end

-- FairScale's FSDP, the origin of PyTorch's FSDP1.
local fairscale = like(fms, "that of PyTorch's FSDP")

-- Lightning's precisions that end in "-true" keep weights, gradients and states in 16 bits (lightning/fabric/plugins/precision/half.py).
local function is_true_half(row) return has(row, "precision", "^b?f?p?l?o?a?t?16%-true") end

local function litgpt(row)
  local how = olmo(row)
  if is_true_half(row) then how.param, how.reduce = passes.half_of(row, {}), passes.half_of(row, {}) end
  return how
end

-- Hugging Face's Trainer: one GPU, DDP, or FSDP1 through accelerate. Weights and moments keep the dtype
-- in which the model was loaded.
local function trainer(row)
  local stage, data, lora = cells.stage(row) or 0, ranks(row) * sharers(row), cells.is_lora(row)
  local pure = lora or has(row, "precision", "pure") or has(row, "precision", "^full%s+b?f") or has(row, "precision", "everything") or has(row, "precision", "autocast") or is_true_half(row)
  local runtime, ops, pieces = trainers.trainer(row)
  local how = { runtime = runtime, mesh = mesh(row, stage > 0), lora = lora, ops = ops, pieces = pieces,
    param = pure and "bf16" or nil, reduce = pure and "bf16" or nil,
    data = data > 1 and (stage > 0 and fsdp2 { reshard_after_forward = stage == 3 } or ddp {}) or nil }
  return scores.of_transformers(row) and scores.write(row, how) or how
end

-- Unsloth changes the kernels of Hugging Face's Trainer.
local unsloth = like(trainer, "that of Hugging Face's Trainer")

-- Forks of Megatron-LM, and frameworks that call Megatron-Core: Pai-Megatron-Patch, FlagScale, Primus, MegaScale.
local fork = like(megatron_lm, "Megatron-Core's")

local frameworks = {
  { "automodel", automodel }, { "^torchtitan", torchtitan }, { "^kempnerforge", kempnerforge }, { "^composer", foundry },
  { "^pytorch fsdp1", fms }, { "^pytorch%s+ddp", torchtitan }, { "nanogpt", torchtitan }, { "megatron%-deepspeed", megatron_deepspeed }, { "^deepspeed.*megatron", megatron_deepspeed }, { "nemo.*megatron%-bridge", megatron }, { "^megatron%-lm", megatron_lm },
  { "^megatron%-core", megatron_lm }, { "^megatron%-bridge", megatron }, { "^megatron%-fsdp", megatron_lm }, { "^megatron%-swift", megatron_lm }, { "^megatron%s*$", megatron_lm }, { "^megatron[%s%(%d]", fork }, { "^nemo", megatron }, { "^deepspeed", deepspeed }, { "^xtuner", xtuner },
  { "nanotron", nanotron }, { "internevo", nanotron }, { "maxtext", maxtext }, { "levanter", jax }, { "easylm", jax }, { "axlearn", jax }, { "%f[%a]pax%f[%A]", jax }, { "%f[%a]jax%f[%A]", jax }, { "pjit", jax }, { "pathways", jax }, { "fairscale", fairscale }, { "paxml", jax }, { "t5x", jax }, { "olmo", olmo }, { "neox", megatron_deepspeed },
  { "llm%-foundry", foundry }, { "deepspeed.*megatron", megatron_deepspeed }, { "megatron.*deepspeed", megatron_deepspeed }, { "deepspeed", deepspeed },
  { "fsdp2", torchtitan }, { "torchtune", torchtitan }, { "vescale", torchtitan }, { "colossal", colossal },
  { "hf trainer", trainer }, { "^hf", trainer }, { "^trl", trainer }, { "sfttrainer", trainer }, { "hugging ?face", trainer }, { "accelerate", trainer }, { "transformers", trainer },
  { "axolotl", trainer }, { "lit%-?gpt", litgpt }, { "lit%-?llama", litgpt }, { "lightning", trainer }, { "llama%-factory", trainer }, { "unsloth", unsloth }, { "fms%-fsdp", fms },
  -- Submitters to MLPerf name the containers of NVIDIA and AMD, which contain NeMo and Megatron.
  { "megatron", fork }, { "flagscale", fork }, { "^primus", fork }, { "megascale", fork },
  { "nemo", megatron }, { "^nvidia", megatron }, { "nvidia release", megatron }, { "rocm", megatron }, { "^llmboost", megatron },
}

-- Returns the framework's profile with the row's changes. If the attention core is recomputed,
-- attention saves no scores.
local function profile(row, how)
  local own = copy_of(require("runtimes." .. how.runtime))
  own.host_optimizer, own.frozen_base = how.host_optimizer, how.lora or nil
  own.update_bytes = how.update_bytes or own.update_bytes
  own.offloaded_blocks = how.offloaded_blocks or how.is_megatron and tonumber(row.offloaded_blocks) or nil
  if how.two_gradients then own.two_gradients, own.holds_gradients = true, true end
  local slower = how.runtime == "megatron_core" and gpus.host_factor(gpus.find(row.gpu) or "H100-SXM5-80GB") or 1
  if how.runtime == "megatron" and megatrons.runs_modules(row) then
    own.kernel_s, own.tensor_s = fitted.megatron_core.kernel_s, fitted.megatron_core.tensor_s
    slower = gpus.host_factor(gpus.find(row.gpu))
  end
  if how.runtime == "megatron_core" and releases.sends_singly(row) then own.message_s = fitted.megatron_core_single.message_s end
  own.host_factor, own.moment_bytes = slower, recipes.moment_bytes(row)
  own.attention = how.attention or own.attention
  own.reports_rank = synonyms.reporting_rank(row) or own.reports_rank
  own.workspace_bytes = how.is_megatron and megatrons.workspace(row) or nil
  own.library_bytes = how.is_megatron and megatrons.library(row, gpus.gpus[gpus.find(row.gpu) or ""]) or nil
  if how.lora and is_float8(row) then own.ops = megatrons.keeps_bytes(row, own.ops) end
  -- NVFP4: 4 bits for each number, and 8 bits for the scale of 16 numbers (Transformer Engine,
  -- common/recipe: NVFP4BlockScaling).
  if is_float4(row) then own.quantised_bytes = 9 / 16 end
  if how.is_megatron then
    own.overlaps_tp, own.input_s = megatrons.overlaps(row), tonumber(row.input_s)
    own.exchange_part = megatrons.exchange_part(row, how.per_node, how.n_micro, how.mesh.ep_mode ~= nil)
    own.own_exchange = recipes.is_flex(row) or nil
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
    require("tandem.published.offload").changes(row, own.ops)
    if not how.lora then blocks.expert_ops(row, own.ops, how.ep or 1) end
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
  return unprofiled.plan(row, { torchtitan = torchtitan, megatron = megatron, maxtext = maxtext })
end

function m.plan(row)
  local stated = copy_of(row)
  for _, key in ipairs { "framework", "model", "flag", "precision" } do
    if synonyms.names_four_bits(row[key] or "") then refuse("a frozen base in 4 bits (QLoRA) is not modelled: %s", row[key]:sub(1, 60)) end
  end
  defaults.fill(row)
  releases.tell(row)
  local how, cluster = framework(row), m.cluster(row)
  how.per_node = cluster.devices_per_node
  if how.plan then return how.plan end
  if row.offloaded_blocks and not cells.is_open(row.offloaded_blocks) and not how.is_megatron then refuse("cpu-offloading-num-layers is modelled only for Megatron") end
  local told = cells.flag(row, "grad_reduce_in_bf16")
  if told ~= nil and not how.is_megatron then how.reduce = told and "bf16" or nil end
  if how.lora == nil and cells.is_lora(row) then how.lora, how.param = true, "bf16" end
  local off = cells.offloads(row)
  if off == "parameters" then refuse("offload to host memory (parameters) is not modelled for this framework") end
  if row.offloads_activations then
    how.offloaded_blocks = count(row, "n_layers")
    cells.note("the time of the copies of activations to host memory is left out")
  end
  if off == "optimizer" and not how.host_optimizer then
    how.host_optimizer = true
    cells.untimed("the host's update of the offloaded optimizer")
  end
  left_out.tell(stated, row, how, ranks(row) * sharers(row))
  local half = passes.half_of(row, how)
  local known = cells.optimizer(row)
  if not cells.is_open(row.optimizer) and not (known and known.adam) then cells.note("%s is planned as AdamW, except for the bytes of its moments", row.optimizer) end
  return plan {
    name = row.id, runtime = profile(row, how), model = model(row, how), cluster = cluster, mesh = how.mesh,
    batch = { global = count(row, "global_batch_seqs"), micro = how.micro or count(row, "micro_batch"), seq = megatrons.tokens(row) },
    parallel = passes.passes(row, how),
    precision = { param = how.param or "fp32", compute = half, reduce = how.reduce or "fp32" },
    optimizer = adamw { state = recipes.moments(row) },
  }
end

return m
