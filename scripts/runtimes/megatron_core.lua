-- Megatron-Core as Megatron-LM's own scripts run it, since 2023: its kernels are `megatron`'s, its host that of Python modules
-- for every product, norm and attention. Rank n - 1 prints what torch.cuda.max_memory_allocated says (training.py:
-- report_memory of the last rank). Host times: tandem/fitted.lua, of dev-cal rows of small models, whose steps the host sets.
local megatron = require "runtimes.megatron"
local ops = {}
for name, op in pairs(megatron.ops) do ops[name] = op end
-- The loss writes its gradient over the softmax, and nothing holds the 16-bit logits once the model has returned.
ops.xent_sumexp_grad = { kernels = 2, passes = 5, in_place = "backward" }
return require "runtimes.eager" { name = "megatron_core", attention = megatron.attention, ops = ops,
  delayed = megatron.delayed, reports = "allocated", holds_gradients = true, reports_rank = "last",
  n_workspaces = 2 }  -- of the thread that goes forward, and of autograd's
