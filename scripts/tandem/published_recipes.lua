-- What Megatron-Bridge's recipes choose if a row names only the model, the GPU and the precision: recomputation, the
-- types of gradients and moments, the exchange between ranks of experts (src/megatron/bridge/recipes, perf_recipes).
-- And the layers that torchtitan keeps in 16 bits.
local cells, gpus = require "tandem.published_cells", require "tandem.gpus"
local has = cells.has
local m = {}

-- Columns: `ac`, the recomputation; `moments`, the type of the optimizer's moments (exp_avg_dtype) if it is not that of the
-- weights at rest; `gradients`, the type in which gradients are summed and reduced; `exchange`, the dispatcher of tokens;
-- `overlap_ep`, 1 if another micro-batch computes during exchanges. A column is open where a recipe has the default:
-- no recomputation, bf16 gradients (perf_recipes/_common.py), DeepEP or HybridEP (moe_token_dispatcher_type).
-- kind: source; Megatron-Bridge's perf_recipes, by model, GPU and precision; the first entry with a value counts
local bridge = {
  { "deepseek.*v3", "^H100", "", ac = "selective(mla_up_proj mlp)" },
  { "deepseek.*v3", "^B200", "mx", ac = "selective(mla_up_proj mlp)" },
  { "deepseek.*v3", "^B200", "fp4", ac = "selective(mla_up_proj layernorm moe_act)" },
  { "deepseek.*v3", "^GB200", "fp4", ac = "selective(mlp)" },
  { "deepseek.*v3", "^GB200", "cs", ac = "selective(mlp)" },
  { "deepseek.*v3", "^GB300", "bf16", ac = "selective(moe_act)" },
  { "deepseek.*v3", "", "", ac = "selective(mla_up_proj)", moments = "bf16" },
  { "moonlight", "", "", moments = "bf16" },
  { "moonlight", "", "", tp = true, exchange = "alltoall" },
  { "gpt.?oss.?120b", "^H100", "", ac = "selective(layernorm moe_act)" },
  { "gpt.?oss.?120b", "^B200", "", ac = "selective(layernorm moe_act)" },
  { "gpt.?oss.?120b", "^GB200", "bf16", ac = "selective(layernorm moe_act)" },
  { "kimi", "^H100", "", ac = "selective(mla_up_proj mlp)" },
  { "kimi", "", "", ac = "selective(mla_up_proj)", gradients = "fp32" },
  { "qwen3.*235b", "^H100", "", overlap_ep = "1" },
  { "llama3.?8b", "^H100", "fp8", ac = "full block 5" },
  { "nemotron.?3.?nano", "^H100", "fp8", ac = "selective(layernorm)" },
  { "nemotron.?3.?nano", "", "", ac = "selective(moe layernorm)" },
  { "nemotron.?3.?super", "^B200", "bf16", ac = "selective(moe_act moe layernorm core_attn)" },
  { "nemotron.?3.?super", "^B200", "fp8", ac = "selective(moe_act layernorm)" },
  { "nemotron.?3.?super", "^B300", "bf16", ac = "selective(moe_act layernorm)" },
  { "nemotron.?3.?super", "^B300", "fp4", ac = "selective(moe_act layernorm)" },
}

-- Returns the layers that stay in 16 bits beside 4-bit ones; nil: none. torchtitan's "bf16 tail" converts the first 85 % of
-- the layers (components/quantization/nvfp4.py, nvfp4_bf16_tail_fqns).
function m.tail(row)
  local list, n = {}, cells.count(row, "n_layers")
  for i = n * 85 // 100, has(row, "precision", "tail") and n - 1 or -1 do list[#list + 1] = ("layers.%d"):format(i) end
  return #list > 0 and list or nil
end

local function is_bridge(row) return has(row, "framework", "^megatron%-bridge") end

-- Returns the value of this column in the row's recipe; nil: the default, or no such recipe.
local function of(row, column)
  local gpu = gpus.find(row.gpu or "") or ""
  for _, known in ipairs(is_bridge(row) and bridge or {}) do
    if known[column] and has(row, "model", known[1]) and gpu:find(known[2]) and has(row, "precision", known[3]) and
      (not known.tp or cells.count(row, "tp", 1) > 1) then return known[column] end
  end
  return nil
end

-- Returns the recomputation of the row's recipe; nil: none is known.
function m.ac(row) return of(row, "ac") end

-- True if gradients are summed and reduced in bf16.
function m.half_gradients(row) return is_bridge(row) and of(row, "gradients") ~= "fp32" end

-- Returns the type of the optimizer's moments if it is not that of the weights at rest. The cell exp_avg_dtype wins.
function m.moments(row)
  if not cells.is_open(row.exp_avg_dtype) then return has(row, "exp_avg_dtype", "bf") and "bf16" or nil end
  return of(row, "moments")
end

-- True if exchanges between the ranks of experts use DeepEP or HybridEP.
function m.is_flex(row) return is_bridge(row) and of(row, "exchange") == nil end

-- True if another micro-batch computes during exchanges.
function m.overlaps_ep(row) return of(row, "overlap_ep") == "1" end

return m
