-- Published runs of DeepSpeed, and of frameworks that join it with Megatron's layers.
local cells, axes, gpus = require "tandem.published.cells", require "tandem.published.frameworks.axes", require "tandem.gpus"
local passes, trainers, scores = require "tandem.published.passes", require "tandem.published.trainer", require "tandem.published.frameworks.written_scores"
local count, has, ranks, mesh = cells.count, cells.has, axes.ranks, axes.mesh
local m = {}

local zero_names = { "optim", "optim_grads", "optim_grads_params" }

-- Returns DeepSpeed's data pass of stage 0, which reduces all gradients at once after the last
-- backward pass (runtime/engine.py: allreduce_gradients; runtime/pipe/engine.py:
-- _exec_reduce_grads).
local function late_reduction() return zero { strategy = "no_shard", overlap_grad_reduce = false, bucket_size = 1 << 50 } end

-- Returns true if the row says that gradients are summed in fp32 ("grad_accum_dtype=fp32").
local function sums_in_fp32(row)
  for _, key in ipairs { "precision", "zero_stage", "flag", "notes" } do
    if has(row, key, "grad[%a_%s]*[=:%s]+f[lp]%a*32") or has(row, key, "f[lp]%a*32[%s_%-]*grad") then return true end
  end
  return cells.flag(row, "grad_reduce_in_bf16") == false
end

-- Returns true if DeepSpeed uses BF16_Optimizer (engine.py: get_data_types,
-- _do_optimizer_sanity_check). Without ZeRO, the releases until 2025 use it and sum bf16 gradients
-- in fp32. With stage 1, they use it only if the configuration asks for fp32 sums and the states
-- are not offloaded. Other rows with stage 1 are assumed to use it if they have a pipeline, because
-- pipelines of older releases fail in bf16 with ZeRO's own optimizer (DeepSpeed #3693, #4713). This
-- is assumed for all releases.
local function has_bf16_optimizer(row, stage)
  if passes.half_of(row, {}) ~= "bf16" then return false end
  if stage == 0 then return true end
  return stage == 1 and not cells.offloads(row) and (sums_in_fp32(row) or count(row, "pp") > 1)
end

-- GPUs that are newer than Megatron-DeepSpeed without flash attention.
local new_chips = { Hopper = true, Blackwell = true, CDNA3 = true, CDNA4 = true }

-- Returns true if attention writes no scores. The layers do so unless the row asks for flash attention
-- (--use-flash-attn) or is of 2024 or later. These rows are assumed to ask for it:
-- - Ulysses, whose authors train with FlashAttention-2 (DeepSpeed-Ulysses, arXiv 2309.14509, 3.4)
-- - runs on newer GPUs
-- - runs in which the scores of one layer need more than half of a device
local function is_flash(row)
  local year = tonumber(row.framework:match "20%d%d" or "")
  if cells.affirms(row.framework, "flash") or cells.affirms(row.flag, "flash") or has(row, "attention_backend", "flash") or year and year >= 2024 then return true end
  local gpu = gpus.gpus[gpus.find(row.gpu) or ""]
  if year or not gpu or not cells.is_open(row.attention_backend) then return false end
  local seq = count(row, "seq")
  local scores_bytes = 5.0 * count(row, "micro_batch") * count(row, "n_heads") // (count(row, "tp") * passes.sharers(row)) * seq * seq
  local why = has(row, "sp", "^ulysses [2-9]") or has(row, "sp", "^ulysses 1%d") or new_chips[gpu.arch] or scores_bytes > gpu.memory * 1048576 / 2
  if why then cells.note "flash attention is assumed; the row does not name its attention" end
  return why
end

-- Returns the ops of rows that train without dropout, or nil. GPT-NeoX's configurations have none
-- (configs/20B.yml), nor have models like Llama (examples_deepspeed/pretrain_llama2_distributed.sh).
-- Then a score takes 2 bytes instead of 5, and sums have no masks.
local function without_dropout(row)
  if not (has(row, "framework", "neox") or scores.trains_without_dropout(row)) then return nil end
  return { attention = { kernels = 7, passes = 1, scores = 2 }, attention_grad = { kernels = 10, passes = 1 }, add = { kernels = 1, passes = 1 } }
end

-- Megatron-DeepSpeed. A row without a ZeRO stage is assumed to use plain data parallelism (as the
-- rows of vTrain do). The vocabulary is padded as in Megatron, to a multiple of 128 times tp. In
-- fp16, gradients are summed and reduced in 16 bits (engine.py: communication_data_type), and the
-- optimizer copies its part of them to fp32 (zero/stage_1_and_2.py, fp16/fused_optimizer.py).
-- BF16_Optimizer shards states, sums gradients in fp32, and also keeps the 16-bit gradients
-- (runtime/bf16_optimizer.py).
function m.megatron_deepspeed(row)
  local stage, half = cells.stage(row) or 0, passes.half_of(row, {})
  local data = ranks(row) * passes.sharers(row) -- ranks of Ulysses hold the same weights
  local multiple = 128 * count(row, "tp")
  local flash = is_flash(row)
  local both = has_bf16_optimizer(row, stage)
  return { runtime = flash and "megatron_core" or "megatron2022", ops = not flash and without_dropout(row) or nil, mesh = mesh(row, stage > 0 or both), vocab = -(-count(row, "vocab") // multiple) * multiple,
    reduce = half == "fp16" and "fp16" or nil, update_bytes = half == "fp16" and stage < 3 and 4 or nil, two_gradients = both or nil,
    data = data > 1 and (both and zero { strategy = "optim", grad_reduce_in_fp32 = true, overlap_grad_reduce = false }
      or stage == 0 and late_reduction() or zero(zero_names[stage])) or nil }
end

function m.deepspeed(row)
  local written = not has(row, "framework", "xtuner") and scores.of_transformers(row)
  -- Arctic Long Sequence Training computes the head and the loss in tiles, like Liger (arXiv 2506.13996, 3.1)
  local tiled = has(row, "framework", "%f[%a]alst%f[%A]") or has(row, "framework", "arctic%s+long")
  local liger = tiled or cells.affirms(row.framework, "liger") or has(row, "peak_mem_kind", "liger")
  local stage = cells.stage(row) or 0
  -- gradients are reduced in the type of the weights (engine.py: communication_data_type)
  local how = { runtime = liger and "deepspeed_liger" or "deepspeed", mesh = mesh(row, stage > 0), reduce = passes.half_of(row, {}),
    data = ranks(row) * passes.sharers(row) > 1 and (stage == 0 and late_reduction() or zero(zero_names[stage])) or nil,
    host_optimizer = row.offload == "optimizer" or cells.offloads(row) == "optimizer", pieces = liger and trainers.liger_pieces(row) or nil }
  return written and scores.write(row, how) or how
end

return m
