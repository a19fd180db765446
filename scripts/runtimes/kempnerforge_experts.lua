-- KempnerForge with experts: the profile of `kempnerforge`, and the tensors that its mixtures of
-- experts keep (model/moe.py, model/router.py). Experts' weights are copied into one stacked tensor
-- for their products. The router keeps its auxiliary loss as an attribute. If a block is
-- recomputed, this is the loss of the second forward pass, and no backward pass runs through its
-- graph. So the tensors that the block's attention and norms saved for that graph stay until the
-- next step. Without tp, each device first creates all experts, and then ep takes its own. This
-- profile is separate because its predictions are less accurate (docs/explanation/accuracy.md).

-- kind: source; the framework's modules and kernels, named at the head of the script
local profile, ops = {}, {}
for key, value in pairs(require "runtimes.kempnerforge") do profile[key] = value end
for name, op in pairs(profile.ops) do ops[name] = op end
profile.name = "kempnerforge_experts"
profile.pads_late = true
ops.balance = { keeps_graph = true }
ops.linear_experts = { stacks = true }
profile.ops = ops
return profile
