-- Megatron-LM before flash attention, as Megatron-DeepSpeed has it: scores are written; layer norm, GELU,
-- softmax and bias + dropout + residual are fused kernels.
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "megatron2022", attention = "unfused",
  ops = { add = { kernels = 1, passes = 1.7 }, attention = { kernels = 8, passes = 1 },
    attention_grad = { kernels = 12, passes = 1 }, layernorm = one } }
