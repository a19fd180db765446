-- The choices of Megatron-Bridge's recipes for a row that names only the model, the GPU and the precision: the types of
-- gradients and moments, and the exchange between ranks of experts (src/megatron/bridge/recipes, perf_recipes).
-- Also the layers that torchtitan keeps in 16 bits.
local cells = require "tandem.published_cells"
local has = cells.has
local m = {}

-- Returns the layers that stay in 16 bits beside 4-bit ones; nil: none. torchtitan's "bf16 tail" converts the first 85 % of
-- the layers (components/quantization/nvfp4.py, nvfp4_bf16_tail_fqns).
function m.tail(row)
  local list, n = {}, cells.count(row, "n_layers")
  for i = n * 85 // 100, has(row, "precision", "tail") and n - 1 or -1 do list[#list + 1] = ("layers.%d"):format(i) end
  return #list > 0 and list or nil
end

local function is_bridge(row) return has(row, "framework", "^megatron%-bridge") end

-- True if gradients are summed and reduced in bf16. All recipes for speed do so (perf_recipes/_common.py:
-- grad_reduce_in_fp32 = False) but Kimi K2's.
-- kind: source; Megatron-Bridge's recipes
function m.half_gradients(row) return is_bridge(row) and not has(row, "model", "kimi") end

-- Returns the type of the optimizer's moments if it is not that of the weights at rest (exp_avg_dtype).
-- kind: source; Megatron-Bridge's recipes
function m.moments(row)
  return is_bridge(row) and (has(row, "model", "deepseek.*v3") or has(row, "model", "moonlight")) and "bf16" or nil
end

-- True if exchanges between the ranks of experts use DeepEP or HybridEP. Moonlight's recipe on 8 GPUs has NCCL's.
-- kind: source; Megatron-Bridge's recipes (moe_token_dispatcher_type)
function m.is_flex(row)
  return is_bridge(row) and not (has(row, "model", "moonlight") and cells.count(row, "tp", 1) > 1)
end

return m
