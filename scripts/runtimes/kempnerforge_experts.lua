-- KempnerForge with experts: the same, and what its mixtures keep (model/moe.py, model/router.py). Experts' weights are stacked
-- for their products. The router keeps its auxiliary loss as an attribute: of a block that is checkpointed that of the second
-- forward pass, whose graph nobody differentiates, so that what the block's attention and norms saved stays until the next
-- step. Without tp all experts are made on each device before ep takes its own. A profile of its own, because predictions
-- of it are off by more (docs/explanation/accuracy.md).
local profile, ops = {}, {}
for key, value in pairs(require "runtimes.kempnerforge") do profile[key] = value end
for name, op in pairs(profile.ops) do ops[name] = op end
profile.name = "kempnerforge_experts"
profile.pads_late = true
ops.balance = { keeps_graph = true }
ops.linear_experts = { stacks = true }
profile.ops = ops
return profile
