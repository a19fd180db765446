-- Hugging Face's Trainer with fused kernels for norms, rope, SwiGLU and the loss
-- (fms-acceleration's foak plugin, from Unsloth and Liger). The model still casts its logits to
-- fp32, and copies them because they are shifted by one token. The loss writes its gradient over
-- this copy.

-- kind: source; the framework's modules and kernels, named at the head of the script
local base, ops, one = require "runtimes.hf_trainer", {}, { kernels = 1, passes = 1 }
for name, op in pairs(base.ops) do ops[name] = op end
ops.rmsnorm, ops.rmsnorm_grad, ops.rope, ops.rope_grad = one, one, one, one
ops.xent_max, ops.xent_sumexp_grad = { kernels = 2, passes = 5, saved = 4, scratch = 4 }, { kernels = 1, passes = 1, in_place = "backward" }
return require "runtimes.eager" { name = "hf_trainer_kernels", fitted = "fsdp1", reports = "allocated", casts_gradients = true,
  holds_arguments = true, update_bytes = 2, ops = ops }
