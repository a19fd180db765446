-- Published runs of Hugging Face's Trainer, and of Liger's fused head and loss.
local cells = require "tandem.published_cells"
local count, has = cells.count, cells.has
local m = {}

-- Liger's head and loss work in chunks with about as many numbers as the head's input (liger_kernel's
-- fused_linear_cross_entropy): a power of two of tokens.
function m.liger_pieces(row)
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

-- The bytes that a loss holds for each logit, where they differ from the profile's. A plan's own logits take two.
-- transformers before 4.46 does not hold the 16-bit logits beside the cast ones (modeling_llama.py). GPTBigCode casts no
-- logits (modeling_gpt_bigcode.py), so log-softmax, gradient and copy have 16 bits.
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

-- Returns the profile's name, the row's own ops of the loss, and the pieces of a fused head and loss. The plugin's
-- fused loss of Liger has no effect under LoRA, whose head is wrapped.
function m.trainer(row)
  local kernels = has(row, "framework", "fast%-kernels") or has(row, "framework", "liger")
  local runtime = kernels and "hf_trainer_kernels" or "hf_trainer"
  if has(row, "framework", "liger") and not cells.is_lora(row) then
    local liger, loss = require "runtimes.deepspeed_liger", {}
    for _, name in ipairs { "xent_max", "xent_pick", "xent_sumexp", "xent_sumexp_grad", "xent_pick_grad" } do loss[name] = liger.ops[name] end
    return runtime, loss, m.liger_pieces(row)
  end
  return runtime, loss_of(row, runtime)
end

return m
