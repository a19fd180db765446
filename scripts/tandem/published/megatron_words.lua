-- Words in Megatron's own columns of published training runs: switches, the parts of a block, experts, number types.
local cells, words = require "tandem.published.cells", require "tandem.published.words"
local m = {}

local function refuse(key, cell) cells.refuse("%s is not known: %s", key, cell:sub(1, 60)) end

-- Switches of Megatron's columns. A cell may name the dtype of gradients instead of yes or no.
local function switches(row)
  local reduce = (row.grad_reduce_in_bf16 or ""):lower()
  if reduce:find "fp32" or reduce:find "float32" then row.grad_reduce_in_bf16 = "0" end
  local graph = (row.cuda_graph or ""):lower()
  if graph:find "^enabled" then row.cuda_graph = "1" end
  if not cells.is_open(row.activation) then
    local text = row.activation:lower()
    local gated = text:find "%f[%a]gated" or text:find "^swi%-" or text:find "^silu%s*$" -- a configuration's hidden_act
    if text:find "ungated" or text:find "non%-gated" or text:find "not gated" then gated = nil end
    if gated then row.activation = text:find "gelu" and "geglu" or "swiglu" end
  end
  local norm = (row.normalization or ""):lower()
  if norm:find "rms" then row.normalization = "RMSNorm" elseif norm:find "%f[%a]ln%f[%A]" then row.normalization = "LayerNorm" end
  local act = (row.activation or ""):lower()
  if act:find "^swish" then row.activation = "swiglu" elseif act:find "^%a+[_%s]gelu$" then row.activation = "gelu" end
  local place = (row.position_embedding or ""):lower()
  if place:find "yarn" or place:find "mrope" then row.position_embedding = "rope" end
  local tie = (row.untie_embeddings or ""):lower()
  if tie:find "^%s*tied" or tie:find "^%s*shared" then row.untie_embeddings = "0" end
end

-- The layers with experts, in the form of Megatron's option. A cell may say "[0, 1, 1]", "([0]*1+[1]*2)*2", "every 2" or "first 3 dense".
local function layers_with_experts(row)
  local cell = row.moe_layer_freq:lower():gsub("%s+", " ")
  if cell:find "^all" or cell:find "^1 ?%(" then row.moe_layer_freq = "1" return end
  if cell:find "^altern" or cell:find "^interleav" or cell:find "^1:1" then cell = "every other" end
  cell = cell:gsub("^first_k_dense_replace ?[:=] ?(%d+)", "first %1 dense")
  local every = cell:match "every (%w+)"
  every = every and (tonumber(every:match "^%d+") or (every == "other" or every == "second") and 2 or every == "layer" and 1) or tonumber(cell:match "^1 ?/ ?(%d+)$")
  if every then row.moe_layer_freq = tostring(math.tointeger(every)) return end
  local dense = tonumber(cell:match "^first (%d+) %a* ?dense" or cell:match "^(%d+) dense" or cell:match "^first (%d+) layers? dense")
  if dense and not cells.is_open(row.n_layers) then
    row.moe_layer_freq = ("([0]*%d+[1]*%d)"):format(dense, cells.count(row, "n_layers") - dense)
    return
  end
  local text = cell:gsub(" ", "")
  if not text:find "%[" or text:find "[^%d%[%]%(%)%+%*,]" then
    if #text > 2 and text:find "^[01]+$" then text = "[" .. text:gsub("(%d)", "%1,") .. "]" else return end
  end
  local function joined(part, times) return part:rep(tonumber(times)) end
  text = text:gsub("%[([01,]*)%]%*(%d+)", function(list, times) return joined((list:gsub(",", "")), times) end)
  text = text:gsub("%[([01,]*)%]", function(list) return (list:gsub(",", "")) end):gsub("%+", "")
  text = text:gsub("%(([01]*)%)%*(%d+)", joined):gsub("[()]", "")
  if not text:find "^[01]+$" then return end
  row.moe_layer_freq = text:gsub("%d", "+[%0]*1"):sub(2)
end

-- Experts: how they get their tokens, the widths of their products, and whether these are one product.
local function experts(row)
  local how = (row.moe_dispatcher or ""):lower()
  if how:find "deep[_%-%s]ep" then row.moe_dispatcher = "deepep" elseif how:find "%f[%a]a2a" or how:find "all[%s_%-]to[%s_%-]all" then row.moe_dispatcher = "alltoall" end
  if (row.moe_grouped_gemm or ""):lower():find "sequential" then row.moe_grouped_gemm = "0" end
  local shared = (row.moe_shared_ffn or ""):lower()
  local n, width = shared:match "^%s*(%d+)%s*x%s*(%d+)"
  if n then row.moe_shared_ffn = ("%d"):format(tonumber(n) * tonumber(width)) end
  if shared:find "^%s*0%s*$" or shared:find "^%s*no" then row.moe_shared_ffn = "" end
  if shared:find "^%s*shared" then row.moe_shared_ffn = shared:match "%d+" or "" end
  if (row.mtp_layers or ""):lower():find "^%s*yes" then row.mtp_layers = "1" end
  if not cells.is_open(row.moe_layer_freq) then layers_with_experts(row) end
end

-- Scales of 8-bit numbers, and the modules that are recomputed.
local function options(row)
  local recipe = (row.fp8_recipe or ""):lower()
  if recipe:find "float8block" or recipe:find "sub%-?channel" then row.fp8_recipe = "blockwise" end
  local modules = (row.recompute_modules or ""):lower()
  if modules:find "^%s*none" then row.recompute_modules = "" elseif modules ~= "" then row.recompute_modules = modules:gsub("(%a)%-(%a)", "%1_%2") end
end

-- Cells of Megatron's columns: the implementation of a block, the sizes of latent attention, fusions that are off.
local latent = { { "q_lora_rank", "q_lora" }, { "kv_lora_rank", "kv_lora" }, { "qk_nope_head_dim", "qk_head" }, { "qk_rope_head_dim", "qk_pos" },
  { "qk_pos_emb_head_dim", "qk_pos" }, { "qk_head_dim", "qk_head" }, { "v_head_dim", "v_head" } }
local function megatron_words(row)
  local made_by = (row.transformer_impl or ""):lower()
  if made_by ~= "" then
    if made_by:find "local" or made_by:find "native" then row.transformer_impl = "local"
    elseif made_by:find "^%s*te%f[%A]" or made_by:find "transformer[%s_%-]*engine" then row.transformer_impl = "transformer_engine"
    else refuse("transformer_impl", row.transformer_impl) end
  end
  if not cells.is_open(row.mla) then
    local text = row.mla:lower():gsub("%s*[:=]%s*", "=")
    for _, name in ipairs(latent) do text = text:gsub(name[1], name[2]) end
    if not text:find "=" and cells.flag(row, "mla") == false then text = "none" end
    if not text:find "=" and text ~= "none" then text, row.needs_mla = "", true end
    row.mla = text
  end
  if not cells.is_open(row.fusions_off) then
    local text = row.fusions_off:lower():gsub("_", "-")
    for _, name in ipairs { "masked-softmax", "gradient-accumulation", "bias-swiglu", "rope", "bias-gelu" } do
      local pattern = name:gsub("%-", "[%%s%%-]")
      if text:find(pattern) then text = text .. " no-" .. name .. "-fusion" end
    end
    row.fusions_off = text
  end
end

-- Writes the cells of a row in the tables' words.
function m.normalise(row)
  switches(row)
  megatron_words(row)
  experts(row)
  options(row)
end

return m
