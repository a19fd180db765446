-- Megatron-Core with TransformerEngine: fused norms, rope, swiglu and cross-entropy; cuDNN's
-- attention; products add gradients directly to fp32 accumulators. SwiGLU saves its inputs and
-- computes silu again. v stays a view of the product of q, k and v, so that whole product stays (2
-- bytes for each element of q and k, beside their rotated copies). The loss subtracts,
-- exponentiates and multiplies in place, so a softmax in fp32 is its only tensor in each direction
-- (core/tensor_parallel/cross_entropy.py). With 8 bits and delayed scaling, norms and swiglu
-- already write three of a block's four operands in 8 bits. Four of seven gradients are quantised
-- separately, some by swiglu, each with its transpose. That is half of the plan's kernels and
-- bytes.

-- kind: source; the framework's modules and kernels, as the comment above names them
local one, half = { kernels = 1, passes = 1 }, { kernels = 0.5, passes = 0.5 }
return require "runtimes.eager" { name = "megatron", attention = "cudnn",
  ops = { rmsnorm = one, rmsnorm_grad = one, rope = { kernels = 1, passes = 1, saved = 2 }, rope_grad = one,
    silu = { kernels = 1, passes = 1, remade = true },
    xent_max = { kernels = 2, passes = 3, saved = 4 }, xent_sumexp_grad = { kernels = 2, passes = 5 }, quantise = half }, delayed = true }
