-- DeepSpeed with Hugging Face's models and Liger's kernels (liger_kernel's apply_liger_kernel_to_*,
-- its defaults). Norms and rope are one kernel each, with gradients in place. SwiGLU is one kernel:
-- it stores no silu, and writes both gradients over its inputs. The loss works in chunks
-- (fused_linear_cross_entropy): it reads the head's weight, writes the gradient over each chunk of
-- logits, and adds each chunk's product to the gradient of the weight through an fp32 copy.

-- kind: source; the framework's modules and kernels, named at the head of the script
local zero = require "runtimes.deepspeed"
local one, none = { kernels = 1, passes = 1 }, { kernels = 0, passes = 0 }
local always = { kernels = 1, passes = 1, in_place = "always" }
local backward = { kernels = 1, passes = 1, in_place = "backward" }
return require "runtimes.eager" { name = "deepspeed_liger", fitted = "fsdp1",
  bucket_elements = zero.bucket_elements, prefetch_elements = zero.prefetch_elements,
  live_elements = zero.live_elements, reuse_elements = zero.reuse_elements, persist_elements = zero.persist_elements,
  head_outside = true, holds_arguments = true, added_bytes = 4, makes_states = zero.makes_states,
  ops = { rmsnorm = one, rmsnorm_grad = backward, rope = always, rope_grad = always, mul = backward,
    silu = { kernels = 0, passes = 0, remade = true, folded = true },
    silu_grad = { kernels = 0, passes = 0, in_place = "backward" },
    xent_max = { kernels = 1, passes = 2 }, xent_pick = none, xent_sumexp = none,
    xent_sumexp_grad = none, xent_pick_grad = none } }
