-- Megatron-Core with TransformerEngine: fused norms, rope, swiglu and cross-entropy; cuDNN's attention;
-- gradients are added to fp32 accumulators by the products themselves. SwiGLU saves what it reads and makes
-- silu again; v stays a view of the product of q, k and v, so that all of it stays (2 bytes an element of q
-- and k, beside their rotated copies).
-- The loss subtracts, exponentiates and multiplies in place: softmax in fp32 is its only tensor, each way
-- (core/tensor_parallel/cross_entropy.py).
-- 8 bits with delayed scaling: three of a block's four operands come in 8 bits from the norms and from swiglu; of
-- seven gradients four are made apart, some as they come from swiglu, each with its transpose: half of the plan's
-- kernels and bytes.
local one, half = { kernels = 1, passes = 1 }, { kernels = 0.5, passes = 0.5 }
return require "runtimes.eager" { name = "megatron", attention = "cudnn",
  ops = { rmsnorm = one, rmsnorm_grad = one, rope = { kernels = 1, passes = 1, saved = 2 }, rope_grad = one,
    silu = { kernels = 1, passes = 1, remade = true },
    xent_max = { kernels = 2, passes = 3, saved = 4 }, xent_sumexp_grad = { kernels = 2, passes = 5 }, quantise = half }, delayed = true }
