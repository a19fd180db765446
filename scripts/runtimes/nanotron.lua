-- nanotron, and InternEvo, which has the same states. FlashAttention-2, fused norms, gradients
-- summed in an fp32 buffer (optim/gradient_accumulator.py). Host times are Megatron's. No published
-- run was used to fit it.

-- kind: source; the framework's modules and kernels, named at the head of the script
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "nanotron", fitted = "megatron", holds_gradients = true, makes_gradients = true,
  ops = { rmsnorm = one, rmsnorm_grad = one, rope = { kernels = 1, passes = 1, saved = 2 }, rope_grad = one } }
