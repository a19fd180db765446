-- Megatron-LM before flash attention, as in Megatron-DeepSpeed: scores are written to memory. Layer
-- norm, GELU, softmax, and bias + dropout + residual are fused kernels. It trains with dropout:
-- after attention and after the MLP, each element has a mask of one byte. Each score takes 5 bytes:
-- the softmax, its mask and the masked softmax (Korthikanti et al., arXiv 2205.05198, 4.1).

-- kind: source; the framework's modules and kernels, named at the head of the script
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "megatron2022", attention = "unfused", sequence_first = true,
  ops = { add = { kernels = 1, passes = 1.7, saved = 1 }, attention = { kernels = 8, passes = 1, scores = 5 },
    attention_grad = { kernels = 12, passes = 1 }, layernorm = one } }
