-- Megatron-Core, as the scripts of Megatron-LM run it since 2023. Its kernels are those of `megatron`.
-- The host runs Python modules for every product, norm and attention. The last rank prints
-- torch.cuda.max_memory_allocated (training.py: report_memory). Host times are in tandem/fitted.lua.
-- They come from dev-cal rows of small models, in which the host determines the step.

-- kind: source; the framework's modules and kernels, named at the head of the script
local megatron = require "runtimes.megatron"
return require "runtimes.eager" { name = "megatron_core", attention = megatron.attention, ops = megatron.ops,
  delayed = megatron.delayed, reports = "allocated", holds_gradients = megatron.holds_gradients, reports_rank = "last",
  waits_messages = megatron.waits_messages, sequence_first = megatron.sequence_first, ring_kernels = megatron.ring_kernels, ring_grad_kernels = megatron.ring_grad_kernels, keeps_quantised = megatron.keeps_quantised,
  n_workspaces = 2 }  -- one for the thread of the forward pass, one for autograd's thread
