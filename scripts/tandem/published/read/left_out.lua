-- Stated cells of a row that do not change its plan. Each gets a note, so that no cell is ignored in
-- silence. Such a note does not change how the row is scored.
local cells, catalog, blocks = require "tandem.published.cells", require "tandem.published.catalog", require "tandem.published.blocks"
local megatrons = require "tandem.published.megatron"
local count, has = cells.count, cells.has
local m = {}

local function has_experts(row) return not cells.is_open(row.moe_experts) or has(row, "hybrid_pattern", "^[^/]*e") end
local function eight_bits(row) return cells.is_float8(row) or cells.is_float4(row) end

-- Lists of cells; `idle` returns true if they do not change the plan, and `why` is the reason.
local lists = {
  { keys = { "moe_topk", "moe_ffn", "moe_grouped_gemm", "moe_shared_ffn", "moe_capacity", "moe_dispatcher", "moe_layer_freq", "moe_latent", "moe_router_type", "overlap_ep", "etp" },
    idle = function(row) return not has_experts(row) end, why = "the model has no experts" },
  { keys = { "vp", "pp_schedule", "pipeline_layout" }, idle = function(row) return count(row, "pp", 1) == 1 end, why = "there is no pipeline" },
  { keys = { "fp8_recipe", "narrow_weights" }, idle = function(row) return not eight_bits(row) end, why = "no product has 8 bits" },
  { keys = { "narrow_weights" }, idle = eight_bits, why = "weights are planned in 16 bits" },
  { keys = { "moe_router_type" }, idle = has_experts, why = "routers are assumed to be balanced" },
  { keys = { "decoder_seq", "decoder_layers" }, idle = function(row) return not has(row, "model", "^t5") end, why = "the model has no decoder beside an encoder" },
  { keys = { "transformer_impl", "fusions_off", "cross_entropy_fusion", "num_distopt_instances", "overlap_grad_reduce", "overlap_param_gather", "overlap_tp",
      "hidden_dropout", "attention_dropout", "cuda_graph", "recompute_modules" },
    idle = function(_, how) return not how.is_megatron end, why = "only plans of Megatron depend on it" },
  { keys = { "attention_dropout" }, idle = function(row, how) return how.is_megatron and not megatrons.writes_scores(row) end, why = "attention writes no scores" },
  { keys = { "compile" }, idle = function(_, how) return not how.compile end, why = "the profile of the framework does not depend on it" },
  { keys = { "deterministic" }, idle = function() return true end, why = "plans have the same kernels in both modes" },
}

-- Returns true if a cell asks for something: not "0", "no", "0.0" or one part of several.
local function asks(row, key)
  local number = tonumber(row[key] or "")
  if cells.is_open(row[key]) or number == 0 or not number and cells.flag(row, key) == false then return false end
  return not ((key == "vp" or key == "etp" or key == "num_distopt_instances") and tonumber(row[key]) == 1)
end

-- Returns the billions of parameters that the sizes of a row give, or nil for models that are not
-- counted here. Norms and biases are left out.
local function billions(row)
  if not cells.is_open(row.hybrid_pattern) or has(row, "model", "^t5") then return nil end
  local dim, heads, layers, ff = count(row, "d_model"), count(row, "n_heads"), count(row, "n_layers"), count(row, "d_ff")
  local attention = catalog.attention { d = dim, h = heads, kv = count(row, "n_kv_heads"), hd = count(row, "head_dim", dim // heads), mla = not cells.is_open(row.mla) and row.mla or nil }
  local mixed = 0
  for _, is in ipairs(has_experts(row) and blocks.mixture_layers(row, layers) or {}) do mixed = mixed + (is and 1 or 0) end
  local wide = mixed > 0 and count(row, "moe_experts") * count(row, "moe_ffn", ff) + count(row, "moe_shared_ffn", 0) or 0
  local own = layers * attention + dim * count(row, "vocab")
  return own / 1e9, dim * ((layers - mixed) * ff + mixed * wide) / 1e9, dim * count(row, "vocab") / 1e9
end

-- Notes a number of parameters that the sizes cannot give. The MLP may have two or three matrices,
-- and the head may be tied.
local function check_parameters(row)
  local stated, fixed, mlp, head = tonumber(row.params_b or ""), billions(row)
  if not stated or not fixed then return end
  local least, most = fixed + 2 * mlp, fixed + 3 * mlp + head
  if stated < 0.8 * least or stated > 1.25 * most then
    cells.leave_out("params_b = %g is left out: the sizes of the model give %.3g to %.3g billion", stated, least, most)
  end
end

-- Options that a plan does not have, as patterns of the words in the notes or flags.
local options = { "window%-size", "sliding%s+window", "precision%-aware%-optimizer", "main%-params%-dtype", "main%-grads%-dtype", "distribute%-saved%-activations",
  "add%-qkv%-bias", "%f[%a]freez%a+", "frozen%s+embed%a*" }

local function check_options(row)
  for _, key in ipairs { "notes", "flag" } do
    local text = (row[key] or ""):lower():gsub("_", "-")
    for _, word in ipairs(options) do
      if cells.affirms(text, word) then cells.leave_out("%s in %s is left out: plans have no such option", text:match(word), key) end
    end
    if not cells.is_lora(row) and cells.affirms(text, "%f[%a]peft") then cells.leave_out("peft in %s is left out: name LoRA in the flags", key) end
  end
end

-- Notes degrees of data parallelism that the mesh does not have. data: the number of data ranks
local function check_mesh(stated, how, data)
  for _, key in ipairs { "dp_replicate", "dp_shard" } do
    local n = tonumber(stated[key] or "")
    if n and n > 1 and n ~= (how.mesh[key] or 1) and n ~= data and n ~= data // (how.mesh.cp or 1) then
      cells.leave_out("%s = %d is left out: %d ranks share states or weights in another way", key, n, data)
    end
  end
end

-- Gives the notes of a row. stated: the row's cells before others were filled; row: all its cells;
-- how: what the framework's function in run.lua returned; data: the number of data ranks.
function m.tell(stated, row, how, data)
  stated.narrow_weights = row.narrow_weights
  for _, list in ipairs(lists) do
    for _, key in ipairs(list.idle(row, how) and list.keys or {}) do
      if asks(stated, key) then cells.leave_out("%s = %s is left out: %s", key == "narrow_weights" and "fp8-param-gather" or key, stated[key]:sub(1, 40), list.why) end
    end
  end
  if not cells.is_open(stated.ac) and not cells.is_open(stated.recompute_granularity) and not has(row, "ac", stated.recompute_granularity:lower():match "^%a*") then
    cells.leave_out("recompute_granularity = %s is left out: the cell ac says %s", stated.recompute_granularity:sub(1, 40), stated.ac:sub(1, 40))
  end
  check_parameters(row)
  check_options(row)
  check_mesh(stated, how, data)
end

return m
