-- Published runs of Hugging Face's Trainer, and Liger's fused head and loss.
local cells = require "tandem.published.cells"
local count, has = cells.count, cells.has
local m = {}

-- Returns the number of chunks in which Liger computes the head and the loss (liger_kernel's
-- fused_linear_cross_entropy). The number of tokens in a chunk is a power of two. It is chosen so
-- that a chunk has about as many logits as the head's whole input has numbers.
function m.liger_pieces(row)
  local shared = tonumber((row.sp or ""):match "^ulysses (%d+)") or count(row, "cp", 1)
  if shared > 1 then
    cells.note("the head and the loss are computed at once: chunks do not work with %d ranks that share a sequence", shared)
    return 1
  end
  local tokens, ratio = count(row, "micro_batch") * count(row, "seq"), -(-count(row, "vocab") // count(row, "d_model"))
  local wanted, chunk = -(-tokens // ratio), 1
  while chunk < wanted do chunk = 2 * chunk end
  return -(-tokens // chunk)
end

local function with_scratch(op, scratch, saved)
  local own = {}
  for key, value in pairs(op) do own[key] = value end
  own.scratch, own.saved = scratch, saved or op.saved
  return own
end

-- Returns the ops of the loss whose bytes for each logit differ from the profile's, or nil. The two
-- bytes of the plan's own logits are not counted here. transformers before 4.46 frees the 16-bit
-- logits when it casts them (modeling_llama.py). GPTBigCode does not cast logits
-- (modeling_gpt_bigcode.py), so log-softmax, gradient and copy have 16 bits.
local function loss_of(row, runtime)
  local own = require("runtimes." .. runtime).ops
  local major, minor = row.framework:match "transformers (%d+)%.(%d+)"
  if has(row, "model", "bigcode") or has(row, "model", "santacoder") then
    return { xent_max = with_scratch(own.xent_max, own.xent_max.scratch // 2, 2),
      xent_sumexp_grad = with_scratch(own.xent_sumexp_grad, (own.xent_sumexp_grad.scratch or 0) // 2) }
  end
  if not major or tonumber(major) * 100 + tonumber(minor) >= 446 then return nil end
  return { xent_max = with_scratch(own.xent_max, own.xent_max.scratch - 2) }
end

-- The ops that PEFT runs in addition to a frozen product (peft/tuners/lora/layer.py). It casts the
-- input to fp32 (adapters are fp32), applies a dropout, and multiplies to the rank and back. Then
-- it scales, adds and casts the result. This traffic, in numbers of 2 bytes, is 9.5 for each number
-- of the input and 14 for each number of the output; in the backward pass, 14.5 and 14. A profile
-- has no costs for a product's gradients, so their traffic is added to the product. If a recomputed
-- block runs the product twice, half of it is added. kind: source; traffic of PEFT's kernels,
-- counted in its source, with a dropout as fms-hf-tuning's default has
local adapter = { kernels = 8, passes = 13, back_kernels = 9, back_passes = 14 }
local function adapters(row, ops)
  if not cells.is_lora(row) then return ops end
  local own = {}
  for key, op in pairs(ops or {}) do own[key] = op end
  local times = has(row, "ac", "^full") and 2 or 1
  for _, name in ipairs { "linear_q", "linear_kv", "linear_o" } do
    own[name] = { kernels = adapter.kernels + adapter.back_kernels / times, passes = adapter.passes + adapter.back_passes / times }
  end
  return own
end

-- Returns the profile's name, the row's own ops of the loss, and the number of chunks of a fused
-- head and loss. LoRA wraps the head, so Liger's fused loss then has no effect.
function m.trainer(row)
  local kernels = has(row, "framework", "fast%-kernels") or has(row, "framework", "liger")
  local runtime = kernels and "hf_trainer_kernels" or "hf_trainer"
  if has(row, "framework", "liger") and not cells.is_lora(row) then
    local liger, loss = require "runtimes.deepspeed_liger", {}
    for _, name in ipairs { "xent_max", "xent_pick", "xent_sumexp", "xent_sumexp_grad", "xent_pick_grad" } do loss[name] = liger.ops[name] end
    return runtime, loss, m.liger_pieces(row)
  end
  return runtime, adapters(row, loss_of(row, runtime))
end

return m
