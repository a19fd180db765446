-- Megatron-Core with TransformerEngine: fused norms, rope, swiglu and cross-entropy; cuDNN's attention;
-- gradients are added to fp32 accumulators by the products themselves.
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "megatron", attention = "cudnn",
  ops = { rmsnorm = one, rmsnorm_grad = one, rope = one, rope_grad = one,
    xent_max = { kernels = 2, passes = 3, saved = 4 } } }
