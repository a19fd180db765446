-- Activations that Megatron copies to host memory: the inputs of the modules that --offload-modules
-- names (--fine-grained-activation-offloading). The plan does not save these tensors; the backward
-- pass makes them again. The time of the copies is not planned, because they run beside the
-- kernels.
-- kind: source; Megatron-LM d98e8a64: docs/user-guide/features/fine_grained_activation_offloading.md
local cells = require "tandem.published.cells"
local m = {}

-- The ops of a plan that make the inputs of a module.
local makers = {
  attn_norm = { "add", "embed", "position" }, mlp_norm = { "add" }, qkv_linear = { "rmsnorm", "layernorm" },
  core_attn = { "linear_q", "linear_kv", "rope", "bias" }, attn_proj = { "attention", "attention_wide" }, expert_fc1 = { "dispatch" }, moe_act = { "linear_experts" },
}

local function with(from, changes)
  local own = {}
  for key, value in pairs(from) do own[key] = value end
  for key, value in pairs(changes) do own[key] = value end
  return own
end

-- Changes the ops of the profile as the row's notes say.
function m.changes(row, ops)
  local notes = row.notes or ""
  if not notes:find "fine%-grained%-activation%-offloading" then return end
  cells.note("the time of the copies to host memory is left out: %s", notes:match "offload%-modules=[^;]*" or "all modules")
  for name in (notes:match "offload%-modules=([^;]*)" or ""):gmatch "[%w_]+" do
    for _, op in ipairs(makers[name] or cells.refuse("offload-modules is not known: %s", name)) do
      ops[op] = with(ops[op] or { kernels = 1, passes = 1 }, { remade = true })
    end
    -- the scores that an unfused attention writes are saved inside this module, so they are
    -- offloaded, too
    for _, op in ipairs(name == "core_attn" and { "attention", "attention_wide" } or {}) do
      if ops[op] then ops[op] = with(ops[op], { scores = 0 }) end
    end
  end
end

return m
