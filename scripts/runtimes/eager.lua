-- The costs of Tandem's ops with PyTorch's eager kernels. An entry has these fields:
-- kernels: the number of kernels that the op launches
-- passes: its memory traffic, as a multiple of reading the inputs and writing the outputs once
-- saved: the bytes for each element of the largest argument that are kept for the backward pass
-- scratch: the bytes for each element of the largest argument that exist only while the op runs
--
-- A profile starts from this table and replaces the entries that differ. Its host times are fitted
-- (tandem/fitted.lua).

-- kind: source; PyTorch's eager kernels, counted in its source
local fitted = require "tandem.fitted"

local nn_ops = {
  -- x.float(), pow, mean, rsqrt, two products and a cast move 36 bytes for each bf16 element; one pass moves 4
  rmsnorm = { kernels = 7, passes = 9, saved = 6, scratch = 4 },
  rmsnorm_grad = { kernels = 12, passes = 8, scratch = 8 },
  -- q and k are read as pairs in fp32, multiplied by e^(i m theta), and cast back
  rope = { kernels = 4, passes = 5, scratch = 8 },
  rope_grad = { kernels = 4, passes = 5, scratch = 8 },
  -- a product adds its bias itself
  bias = { kernels = 0, passes = 0 },
  -- logits.float(), log_softmax and nll_loss: Tandem divides this computation into four ops in each
  -- direction
  xent_max = { kernels = 2, passes = 7, saved = 4, scratch = 4 },
  xent_pick = { kernels = 1, passes = 0 },
  xent_sumexp = { kernels = 1, passes = 0 },
  xent_sumexp_grad = { kernels = 2, passes = 5, scratch = 8, tensors = 2 },
  xent_pick_grad = { kernels = 1, passes = 0 },
}

-- Returns a profile: the common values and ops, with the values and ops of `how` in their place.
return function(how)
  local ops = {}
  for name, op in pairs(nn_ops) do ops[name] = op end
  for name, op in pairs(how.ops or {}) do ops[name] = op end
  -- makes_states: the optimizer creates the states of a parameter in its first step. These
  -- optimizers do so: PyTorch's (torch/optim/adam.py: Adam.step, "Lazy state initialization"),
  -- Apex's (optimizers/fused_adam.py: FusedAdam.step) and Transformer Engine's
  -- (pytorch/optimizers/fused_adam.py: FusedAdam.step calls initialize_state).
  -- kind: assumed; host times of a profile without fitted ones
  local profile = { attention = "flash2", kernel_s = 6e-6, call_s = 6e-6, compiled_s = 4e-6, tensor_s = 0, collective_s = 30e-6,
    unit_s = 200e-6, update_s = 100e-6, step_s = 5e-3, delayed = false, expandable = false, reports = "reserved",
    makes_states = true }
  for key, value in pairs(fitted[how.fitted or how.name] or {}) do profile[key] = value end
  for key, value in pairs(how) do profile[key] = value end
  profile.fitted = nil
  profile.ops = ops
  return profile
end
