-- Reads Megatron's own columns in tables of published training runs: switches, the parts of a
-- block, experts, number types.
local cells, catalog = require "tandem.published.cells", require "tandem.published.catalog"
local m = {}

local function refuse(key, cell) cells.refuse("%s is not known: %s", key, cell:sub(1, 60)) end

-- Reads the switches of Megatron's columns. The cell grad_reduce_in_bf16 may name a dtype instead of yes or
-- no. A name that a cell denies does not count.
local function switches(row)
  local function affirmed(key, names) return cells.without_denied((row[key] or ""):lower(), names) end
  local reduce, not_wide = affirmed("grad_reduce_in_bf16", { "fp32", "float32" })
  if reduce:find "fp32" or reduce:find "float32" then row.grad_reduce_in_bf16 = "0" elseif not_wide then row.grad_reduce_in_bf16 = "1" end
  local graph, no_graph = affirmed("cuda_graph", { "^full%a*", "enabled", "cuda[%s_%-]*graphs?%f[^%w_]" })
  local settings = graph:find "=%s*[1t]" -- in a list of settings, graphs are on if one setting is on
  if no_graph and not settings then row.cuda_graph = "0" elseif graph:find "^enabled" or graph:find "^cuda[%s_%-]*graphs?%s*$" or graph:find "^%-*enable%-cuda%-graph" then row.cuda_graph = "1"
  -- Graphs of single layers (--cuda-graph-impl) count only without experts, because layers with
  -- experts are not captured as a whole.
  elseif cells.is_open(row.moe_experts) and (graph:find "^local%s*$" or graph:find "^transformer_engine%s*$" or graph:find "^te%s+graphs?%s*$") then row.cuda_graph = "1" end
  if not cells.is_open(row.activation) then
    local text, not_gated = affirmed("activation", { "%f[%a]gat%a*", "%f[%a]glu%f[%A]", "swiglu", "geglu", "reglu" })
    not_gated = not_gated or text:find "ungated"
    local gated = text:find "%f[%a]gated" or text:find "^swi%-" or text:find "^silu%s*$" or text:find "^swish" -- "silu" and "swish" are the hidden_act of a configuration
    row.activation = not_gated and text:gsub("^%W+", ""):gsub("^swish", "silu") or row.activation
    if gated and not not_gated then row.activation = text:find "gelu" and "geglu" or "swiglu" end
  end
  local norm, denied = affirmed("normalization", { "rms[%s_%-]*%a*", "layer[%s_%-]*norm", "%f[%a]ln%f[%A]" })
  if norm:find "rms" then row.normalization = "RMSNorm" elseif norm:find "%f[%a]ln%f[%A]" then row.normalization = "LayerNorm" elseif denied then row.normalization = norm end
  local act = (row.activation or ""):lower()
  if act:find "^%a+[_%s]gelu$" then row.activation = "gelu" end
  local place, unplaced = affirmed("position_embedding", { "m?rope", "rotary", "yarn", "learned%a*" })
  if place:find "yarn" or place:find "mrope" then row.position_embedding = "rope" elseif unplaced then row.position_embedding = place:find "%a" and place or "none" end
  local tie, untied = affirmed("untie_embeddings", { "%f[%a]ti[ey]%a*", "%f[%a]tying", "%f[%a]shar%a*" })
  if tie:find "%f[%a]ti[ey]" or tie:find "%f[%a]tying" or tie:find "%f[%a]shar" then row.untie_embeddings = "0" elseif untied then row.untie_embeddings = "1" end
  if not cells.is_open(row.exp_avg_dtype) then row.exp_avg_dtype = affirmed("exp_avg_dtype", { "b?fp?l?o?a?t?16", "b?fp?l?o?a?t?8", "fp32" }) end
  if not cells.is_open(row.moe_capacity) then row.moe_capacity = affirmed("moe_capacity", { "pad%a*" }) end
end

local ordinals = { other = 2, second = 2, third = 3, fourth = 4, layer = 1, block = 1 }

-- Returns the number of dense layers at the start that a text gives: "first 3 layers dense", "all
-- but first layer". Returns nil if it gives none.
local function dense_layers(text)
  text = text:gsub("%f[%a]the%f[%A] ?", ""):gsub("%f[%a]is%f[%A] ?", ""):gsub("%f[%a]are%f[%A] ?", ""):gsub("%f[%a]for%f[%A] ?", "")
  text = text:gsub("^dense (first %d* ?layers?)", "%1 dense"):gsub("%f[%a]first (%a)", "first 1 %1"):gsub("first%s*$", "first 1")
  return tonumber(text:match "^first (%d+) %a* ?dense" or text:match "^(%d+) dense" or text:match "^1 ?%(first (%d+) %a* ?dense" or text:match "^all[^%w]* ?but first (%d+)" or
    text:match "^all[^%w]* ?except first (%d+)" or text:match "^every layer but first (%d+)" or text:match "^every layer except first (%d+)")
end

-- Returns the period of layers with experts that a text names: "all", "every 4th layer",
-- "interleaved", "interleave_moe_layer_step=2". Returns nil if it names none.
local function period_of(text)
  if text:find "^all ?$" or text:find "^all %a*[%s%-]*layers?$" or text:find "^1 ?%( ?all" or text:find "^1 ?%( ?every layer" then return 1 end
  if text:find "dense" and not text:find "^altern" or text:find "except" or text:find "%f[%a]but%f[%A]" or text:find "^not?%f[%A]" or text:find "^without" then return nil end
  local every = text:match "every (%w+)"
  if every then return ordinals[every] or tonumber(every:match "^%d+") end
  local stated = text:match "^1 ?/ ?(%d+)$" or text:match "^interleave_moe_layer_step%W*(%d+)$" or text:match "^decoder_sparse_step%W*(%d+)$" or text:match "^moe_layer_freq%W*(%d+)$"
  if stated then return tonumber(stated) end
  return (text:find "^1:1%s*$" or text:find "^altern[%a ]*$" or text:find "^interleav[%a ]*$") and 2 or nil
end

-- Rewrites the cell moe_layer_freq in the form of Megatron's option. The cell may also be "[0, 1,
-- 1]" or "([0]*1+[1]*2)*2". Any other text stays as it is, and blocks.lua refuses it when it makes
-- the model.
local function layers_with_experts(row)
  local cell = row.moe_layer_freq:lower():gsub("%s+", " "):match "^ ?(.-) ?$":gsub("^first_k_dense_replace ?[:=] ?(%d+)", "first %1 dense")
  local dense, period = dense_layers(cell), period_of(cell)
  local known = dense and cells.is_open(row.n_layers) and catalog.find(row.model or "")
  local layers = known and known.l or dense and not cells.is_open(row.n_layers) and cells.count(row, "n_layers")
  if layers then row.moe_layer_freq = ("([0]*%d+[1]*%d)"):format(dense, layers - dense) return end
  if period then row.moe_layer_freq = tostring(math.tointeger(period)) return end
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

-- Reads the cells of experts: the token dispatcher, the widths of the products, and whether the
-- products of all experts are grouped.
local function experts(row)
  local how, denied = cells.without_denied((row.moe_dispatcher or ""):lower():gsub("deep[_%-%s]ep", "deepep"), { "deepep", "hybridep", "flex", "all[%s_%-]?to[%s_%-]?all", "all[%s_%-]?2[%s_%-]?all" })
  if denied or how:find "deepep" then row.moe_dispatcher = how end
  if denied and not how:find "all" and not how:find "a2a" then
    cells.note("the dispatcher of tokens is not named; alltoall is assumed: %s", how)
    row.moe_dispatcher = "alltoall"
  end
  local flex = how:find "deepep" or how:find "hybridep" or how:find "flex"
  if not flex and (how:find "%f[%a]a2a" or how:find "all[%s_%-]?to[%s_%-]?all" or how:find "all[%s_%-]?2[%s_%-]?all") then row.moe_dispatcher = "alltoall" end
  if cells.affirms(row.moe_grouped_gemm, "sequential") then row.moe_grouped_gemm = "0" end
  local shared = (row.moe_shared_ffn or ""):lower()
  shared = shared:gsub("(%d),(%d%d%d)%f[%D]", "%1%2")
  if shared:find "^%s*%d" then row.moe_shared_ffn = shared:match "^%s*%d+%s*$" or row.moe_shared_ffn end
  if shared:find "%d,%s*%d" then refuse("moe_shared_ffn", shared) end
  local n, width = shared:match "^%s*(%d+)%s*[x*]%s*(%d+)"
  if not n then n, width = shared:match "^%s*(%d+)%s+%a[%a%s]*[%s%(]of%s+(%d+)" end
  if not n then n, width = shared:match "^%s*(%d+)%s+%a[%a%s]*%(%s*(%d+)%s*%a*%s*%)" end
  -- no width is this small, so the cell counts experts
  local few = tonumber(shared:match "^%s*(%d+)%s*$" or shared:match "^%s*(%d+)%s+shared%a*%s*%a*%s*$" or shared:match "^%s*(%d+)%s+experts?%s*$")
  if few and few > 0 and few <= 16 then
    if cells.is_open(row.moe_ffn) or not tonumber(row.moe_ffn) then refuse("moe_shared_ffn", shared) end
    n, width = few, tonumber(row.moe_ffn)
  end
  if n then row.moe_shared_ffn = ("%d"):format(tonumber(n) * tonumber(width)) end
  if shared ~= "" and cells.flag(row, "moe_shared_ffn") == false then row.moe_shared_ffn = "" end
  if shared:find "^%s*shared" then row.moe_shared_ffn = shared:match "%d+" or "" end
  if not cells.is_open(row.mtp_layers) and cells.flag(row, "mtp_layers") == false then row.mtp_layers = "0" end
  if (row.mtp_layers or ""):lower():find "^%s*yes" then row.mtp_layers = "1" end
  if not cells.is_open(row.moe_layer_freq) then layers_with_experts(row) end
end

-- Reads the kind of scales of 8-bit numbers, and the modules that are recomputed.
local function options(row)
  local recipe = (row.fp8_recipe or ""):lower()
  recipe = cells.without_denied(recipe, { "%d+%s*x%s*%d+", "%f[%a]sc%f[%A]", "sub%-?channels?" })
  if recipe:find "microscal" or recipe:find "1%s*x%s*32%f[%D]" then row.fp8_recipe = "mxfp8"
  elseif recipe:find "float8block" or recipe:find "sub%-?channel" or recipe:find "%d%s*x%s*128%f[%D]" or recipe:find "^%s*sc%f[%A]" or recipe:find "deepseek" then row.fp8_recipe = "blockwise" end
  if (row.cross_entropy_fusion or ""):lower():find "^%s*transformer[%s_%-]*engine" then row.cross_entropy_fusion = "te" end
  local modules = (row.recompute_modules or ""):lower()
  if modules:find "^%s*none" then row.recompute_modules = "" elseif modules ~= "" then row.recompute_modules = modules:gsub("(%a)%-(%a)", "%1_%2") end
end

-- Reads further cells of Megatron's columns: the implementation of a block, the sizes of latent
-- attention, fusions that are off.
local latent = { { "q_lora_rank", "q_lora" }, { "kv_lora_rank", "kv_lora" }, { "qk_nope_head_dim", "qk_head" }, { "qk_rope_head_dim", "qk_pos" },
  { "qk_pos_emb_head_dim", "qk_pos" }, { "qk_head_dim", "qk_head" }, { "v_head_dim", "v_head" } }
local function megatron_words(row)
  local made_by, denied = cells.without_denied((row.transformer_impl or ""):lower(), { "local", "native", "%f[%a]te%f[%A]", "transformer[%s_%-]*engine" })
  if made_by ~= "" or denied then
    local own = row.transformer_impl:lower()
    if denied and (own:find "engine" or own:find "%f[%a]te%f[%A]") and not made_by:find "engine" and not made_by:find "%f[%a]te%f[%A]" then row.transformer_impl = "local"
    elseif made_by:find "local" or made_by:find "native" then row.transformer_impl = "local"
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
      local on = text:find(pattern .. "[%s%-]*fusion[%s:=%(]*on%f[%A]") or text:find(pattern .. "[%s%-]*fusion[%s:=%(]*enabled")
      if text:find("no[%s%-]+" .. pattern) then on = nil end -- the option --no-...-fusion itself is on
      if text:find(pattern) and not on then text = text .. " no-" .. name .. "-fusion" end
      if on then text = text:gsub(pattern .. "[%s%-]*fusion[%s:=%(]*%a+", "") end
    end
    row.fusions_off = text
  end
end

-- Rewrites the cells of a row in the words that the other files know.
function m.normalise(row)
  switches(row)
  megatron_words(row)
  experts(row)
  options(row)
end

return m
