-- The blocks of Megatron's published runs: which layers have experts, which activations of a block
-- are kept for the backward pass, and which are recomputed.
local cells, hybrid = require "tandem.published.cells", require "tandem.published.hybrid"
local refuse, count, has = cells.refuse, cells.count, cells.has
local m = {}

-- Returns a list that says for each layer whether it has experts. The cell gives a period ("2":
-- every second layer, beginning with the first) or a list in Python ("([0]*1+[1]*15)"). If the cell
-- is empty, all layers have experts.
function m.mixture_layers(row, layers)
  local cell, is = (row.moe_layer_freq or ""):gsub("%s", ""), {}
  local period = math.tointeger(tonumber(cell))
  if cell == "" or period then
    for i = 1, layers do is[i] = (i - 1) % (period or 1) == 0 end
    return is
  end
  for value, times in cell:gmatch "%[([01])%]%*(%d+)" do
    for _ = 1, tonumber(times) do is[#is + 1] = value == "1" end
  end
  if #is ~= layers then refuse("moe_layer_freq %s does not describe %d layers", row.moe_layer_freq, layers) end
  return is
end

-- Returns one number of the cell `mla`, which has the sizes of latent attention, such as
-- "q_lora=1536 kv_lora=512 qk_head=128 qk_pos=64 v_head=128"; 0: the cell lacks it.
function m.latent(row, key) return tonumber((row.mla or ""):match(key .. "=(%d+)")) or 0 end

-- Returns true if the heads of queries and keys are normalised, as in Qwen 3 (qk_layernorm).
function m.norms_heads(row)
  return (has(row, "notes", "qk%-layernorm") or has(row, "model", "^qwen3")) and m.latent(row, "kv_lora") == 0
end

local function named(row, module) return has(row, "ac", "[%(%[ ]" .. module .. "[%]%),; ]") end

-- Returns true if the queries, keys and values of latent attention are recomputed from their small
-- projections (core/transformer/multi_latent_attention.py: qkv_up_checkpoint).
local function remakes_latent(row) return m.latent(row, "kv_lora") > 0 and named(row, "mla_up_proj") end

-- Returns the paths of the modules that --recompute-modules names, or nil if there are none. Also
-- returns the ops in these modules whose outputs are kept, or nil. `moe_act` recomputes only the
-- activation between the products of an expert. In latent attention, `mla_up_proj` recomputes the
-- products that make queries, keys and values, and their rotation. The plan also recomputes the
-- small projections, which are a fifth of these products in DeepSeek-V3.
function m.recomputed(row)
  if not row.names_parts then return nil end
  local paths, n = {}, count(row, "n_layers")
  local mixed, dense, remade = named(row, "moe"), named(row, "mlp"), remakes_latent(row)
  local active = named(row, "moe_act") and not remade
  local letters, _, head = hybrid.read(row)
  if letters then letters = letters .. (head ~= "" and head or letters:sub(-1)):rep(count(row, "mtp_layers", 0)) end
  local has_experts = not cells.is_open(row.moe_experts) and not letters and m.mixture_layers(row, n) or {}
  for i = 1, n + hybrid.further_blocks(row) do  -- heads that predict further tokens (MTP) repeat the last block
    local mixes = has_experts[math.min(i, n)]
    local multiplies = not mixes
    if letters then mixes, multiplies = letters:sub(i, i) == "E", letters:sub(i, i) == "-" end
    if remade then paths[#paths + 1] = ("layers.%d.first"):format(i - 1) end
    if mixes and (mixed or active) or multiplies and dense then
      paths[#paths + 1] = ("layers.%d.%s"):format(i - 1, letters and "first" or "second")
    end
  end
  if #paths == 0 then return nil end
  if remade then return paths, { "attention", "linear_o", "rmsnorm" } end
  return paths, active and not mixed and not dense and { "linear", "dispatch", "combine", "topk", "route", "slots", "balance", "add" } or nil
end

-- Returns the bytes for each element of queries and keys that stay allocated in addition to the
-- rotated ones, or nil. They belong to the product of q, k and v, which stays allocated as long as
-- a view of it is saved. Megatron's own attention (`local`) saves the values, and a norm of the
-- keys saves the keys. Both are views, and either keeps the whole product: 2 bytes. If there are as
-- many keys as queries, the norm of the queries also saves a view, so only the values are added: 1
-- byte (core/transformer/attention.py: SelfAttention.get_query_key_value_tensors).
local function kept_product(row)
  if has(row, "transformer_impl", "^local") then return 2 end
  return m.norms_heads(row) and (count(row, "n_kv_heads") < count(row, "n_heads") and 2 or 1) or nil
end

-- Changes the profile's ops for attention. In latent attention, queries and keys are rotated in
-- place or copied, and values are copied. So no saved view keeps a product allocated
-- (core/transformer/multi_latent_attention.py: qkv_up_proj_and_rope_apply;
-- core/fusions/fused_mla_yarn_rope_apply.py). If a row recomputes both `mla_up_proj` and `moe_act`,
-- this function also marks the output of an expert's activation as recomputed.
function m.attention_ops(row, ops)
  local is_latent = m.latent(row, "kv_lora") > 0
  local added = not is_latent and kept_product(row) or nil
  if is_latent or added then ops.rope = { kernels = 1, passes = 1, saved = added } end
  if remakes_latent(row) and named(row, "moe_act") then ops.mul = { kernels = 1, passes = 1, remade = true } end
end

-- Changes the profile's ops if the row recomputes `layernorm`: the outputs of the norms before
-- attention and before the MLP are not saved (core/tensor_parallel/random.py:
-- CheckpointWithoutOutput). The gradient then computes the norm again.
function m.norm_ops(row, ops)
  if not named(row, "layernorm") then return end
  for _, name in ipairs { "rmsnorm", "layernorm" } do
    ops[name] = { kernels = 1, passes = 1, remade = true }
    ops[name .. "_grad"] = { kernels = 2, passes = 2 }
  end
end

-- Changes the profile's ops if the row does not fuse SwiGLU (--no-bias-swiglu-fusion): silu is a separate kernel in each
-- direction, and its output is kept.
function m.mlp_ops(row, ops)
  if not has(row, "fusions_off", "swiglu") then return end
  ops.silu, ops.silu_grad = { kernels = 1, passes = 1 }, { kernels = 1, passes = 1 }
end

local function more_calls(ops, name, n)
  local own = {}
  for key, value in pairs(ops[name]) do own[key] = value end
  own.calls = math.max(0, (own.calls or 0) + n)
  ops[name] = own
end

-- Changes the number of PyTorch calls that Megatron's token dispatcher makes. An exchange of tokens
-- (alltoall) needs the numbers of tokens that each rank sends and receives: five sums and copies,
-- and six copies to the host. It also exchanges the weights of the router, and sorts the tokens
-- that arrive by expert (core/transformer/moe/token_dispatcher.py: MoEAlltoAllTokenDispatcher).
-- With --moe-permute-fusion, one kernel of Transformer Engine moves tokens and weights
-- (moe_utils.py: permute, unpermute).
-- kind: source; calls of the dispatcher's functions
local alltoall, fused = { slots = 11, dispatch = 5, dispatch_grad = 4, combine = 2, combine_grad = 2 }, { dispatch = -7, dispatch_grad = -4, combine = -4, combine_grad = -1 }
local function dispatcher_ops(row, ops, planned_ep)
  for name, n in pairs(has(row, "moe_dispatcher", "^alltoall") and alltoall or {}) do more_calls(ops, name, n) end
  -- If the ranks of ep are ranks of tp (ep x etp = tp), the plan has no exchange. The host's time
  -- for Megatron's four exchanges is added instead; each is a function of autograd
  -- (core/tensor_parallel/mappings.py: _AllToAll).
  if has(row, "moe_dispatcher", "^alltoall") and count(row, "ep", 1) > 1 and planned_ep == 1 then
    for _, name in ipairs { "dispatch", "dispatch_grad", "combine", "combine_grad" } do ops[name].kernels = ops[name].kernels + 1 end
  end
  for name, n in pairs(has(row, "notes", "moe%-permute%-fusion") and fused or {}) do more_calls(ops, name, n) end
end

-- Changes the profile's ops for experts. Without --moe-grouped-gemm, each expert of a rank has separate products
-- (core/transformer/moe/experts.py: SequentialMLP). With it, one module computes the products of all experts, but the host
-- issues each of them (Transformer Engine, common/gemm/cublaslt_gemm.cu: multi_stream_cublas_gemm).
--
-- A profile has no entries for gradients of products. So a product's calls include those of both gradients. If SwiGLU
-- joins two products, the plan has three where Megatron has two.
--
-- With 8-bit or 4-bit operands, a product keeps its quantised input for the gradient of its weight (Transformer Engine,
-- pytorch/module/grouped_linear.py). Plans compute these products in 16 bits.
-- planned_ep: the plan's degree of ep.
function m.expert_ops(row, ops, planned_ep)
  if cells.is_open(row.moe_experts) then return end
  local own, n = { passes = 1 }, math.max(1, count(row, "moe_experts") // count(row, "ep", 1))
  for key, value in pairs(ops.linear_experts or {}) do own[key] = value end
  local alone = cells.flag(row, "moe_grouped_gemm") == false
  own.kernels, own.calls = alone and n or 1, not alone and 3 * n * (has(row, "activation", "glu") and 2 / 3 or 1) or nil
  if cells.is_float8(row) or cells.is_float4(row) then own.keeps_bytes = true end
  ops.linear_experts = own
  dispatcher_ops(row, ops, planned_ep)
end

-- Changes the memory of the profile's optimizer. With moments in 16 bits, Transformer Engine's
-- FusedAdam makes fp32 copies of all moments of a rank for its step
-- (pytorch/optimizers/fused_adam.py: get_unscaled_state). It stores only those 16 bits of a master
-- weight that the bf16 weight lacks (store_param_remainders). In other runs with 16-bit gradients,
-- Megatron makes fp32 copies of them for the step (core/optimizer/distrib_optimizer.py:
-- _copy_model_grads_to_main_grads). half: true if gradients have 16 bits.
function m.optimizer(row, own, half, moments)
  local bits8 = cells.is_float8(row) or cells.is_float4(row)
  if moments == "bf16" or moments == "fp16" then
    own.update_bytes, own.master_bytes = 8, not bits8 and 2 or nil
  elseif half then
    own.update_bytes = 4
  end
end

return m
