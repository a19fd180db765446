-- Megatron-Core as the scripts of Megatron-LM have run it since 2023. Its kernels are those of
-- `megatron`. The host runs Python modules for every product, norm and attention. Rank n - 1 prints
-- torch.cuda.max_memory_allocated (training.py: report_memory of the last rank). Host times:
-- tandem/fitted.lua, from dev-cal rows of small models, whose steps are bound by the host.

-- kind: source; the framework's modules and kernels, named at the head of the script
local megatron = require "runtimes.megatron"
return require "runtimes.eager" { name = "megatron_core", attention = megatron.attention, ops = megatron.ops,
  delayed = megatron.delayed, reports = "allocated", holds_gradients = megatron.holds_gradients, reports_rank = "last",
  waits_messages = megatron.waits_messages, keeps_quantised = megatron.keeps_quantised,
  n_workspaces = 2 }  -- one for the forward thread, one for autograd's
