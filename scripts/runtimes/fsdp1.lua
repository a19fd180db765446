-- FSDP1 of composer and llm-foundry: the parameters of a unit form one flat tensor, and attention
-- is Triton's kernel (MPT's default of that time). A layer norm is one kernel. A fused
-- cross-entropy writes its gradient over the logits.

-- kind: source; the framework's modules and kernels, named at the head of the script
local one = { kernels = 1, passes = 1 }
return require "runtimes.eager" { name = "fsdp1", attention = "triton",
  ops = { xent_max = one, xent_pick = { kernels = 0, passes = 0 }, xent_sumexp = { kernels = 0, passes = 0 },
    xent_sumexp_grad = one, xent_pick_grad = { kernels = 0, passes = 0 } } }
