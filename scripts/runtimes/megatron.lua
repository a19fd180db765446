-- Megatron-Core with TransformerEngine: fused norms, rope, swiglu and cross-entropy; cuDNN's attention;
-- gradients are added to fp32 accumulators by the products themselves. SwiGLU saves what it reads and makes
-- silu again; v stays a view of the product of q, k and v, so that all of it stays (2 bytes an element of q
-- and k, beside their rotated copies).
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "megatron", attention = "cudnn",
  ops = { rmsnorm = one, rmsnorm_grad = one, rope = { kernels = 1, passes = 1, saved = 2 }, rope_grad = one,
    silu = { kernels = 1, passes = 1, remade = true },
    xent_max = { kernels = 2, passes = 3, saved = 4 } } }
