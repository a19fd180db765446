-- Published runs of Megatron-Core, Megatron-LM, NeMo, Megatron-Bridge and Megatron-DeepSpeed: the
-- model that the cells state, and the memory and passes that follow from the framework's options.
local cells, nn, experts = require "tandem.published_cells", require "tandem.nn", require "tandem.experts"
local refuse, count, has, flag = cells.refuse, cells.count, cells.has, cells.flag
local m = {}

-- ---- the model

-- Only a row from a table with Megatron's own columns states how its blocks are made.
function m.states_blocks(row) return (row.normalization or "") ~= "" and (row.activation or "") ~= "" end

local function norm_of(row)
  if has(row, "normalization", "^layer") then return nn.layernorm end
  if has(row, "normalization", "^rms") then return nn.rmsnorm end
  refuse("normalization is not known: %s", row.normalization)
end

local function is_gated(row) return has(row, "activation", "glu") end

local function activation_of(row)
  if has(row, "activation", "^swiglu") or has(row, "activation", "^silu") then return nn.silu end
  -- A squared ReLU reads and writes as much as GELU, which stands for it.
  if has(row, "activation", "^geglu") or has(row, "activation", "^gelu") or has(row, "activation", "relu") then return nn.gelu end
  refuse("activation is not known: %s", row.activation)
end

local function mlp(row, dim, hidden, bias)
  local act = activation_of(row)
  if not is_gated(row) then
    return nn.module { up = nn.linear(dim, hidden, { bias = bias }), down = nn.linear(hidden, dim, { bias = bias }),
      tp_col = { "up" }, tp_row = { "down" }, forward = function(self, x) return self.down(act(self.up(x))) end }
  end
  return nn.module { gate = nn.linear(dim, hidden, { bias = bias }), up = nn.linear(dim, hidden, { bias = bias }),
    down = nn.linear(hidden, dim, { bias = bias }), tp_col = { "gate", "up" }, tp_row = { "down" },
    forward = function(self, x) return self.down(act(self.gate(x)) * self.up(x)) end }
end

-- Tokens are shared evenly over the experts: Megatron drops none, and its routers are balanced.
local function mixture(row, dim, cut)
  local routed = nn.moe { dim = dim, hidden = count(row, "moe_ffn", count(row, "d_ff")), experts = count(row, "moe_experts"),
    top_k = count(row, "moe_topk", 1), capacity_factor = 1, gated = is_gated(row) }
  local col, back = cut and { "routed.w1" } or {}, cut and { "routed.w2" } or {}
  if cut and is_gated(row) then col[2] = "routed.w3" end
  if (row.moe_shared_ffn or "") == "" then
    return nn.module { routed = routed, tp_col = col, tp_row = back, forward = function(self, x) return self.routed(x) end }
  end
  return nn.module { routed = routed, shared = mlp(row, dim, count(row, "moe_shared_ffn"), false), tp_col = col, tp_row = back,
    forward = function(self, x) return self.routed(x) + self.shared(x) end }
end

-- Returns the layers that have experts: a period ("2": every second), or Python's list
-- ("([0]*1+[1]*15)"); all layers if the row does not say.
local function mixture_layers(row, layers)
  local cell, is = (row.moe_layer_freq or ""):gsub("%s", ""), {}
  local period = math.tointeger(tonumber(cell))
  if cell == "" or period then
    for i = 1, layers do is[i] = (i - 1) % (period or 1) == 0 end
    return is
  end
  for value, times in cell:gmatch "%[([01])%]%*(%d+)" do
    for _ = 1, tonumber(times) do is[#is + 1] = value == "1" end
  end
  if #is ~= layers then refuse("moe_layer_freq %s is not of %d layers", row.moe_layer_freq, layers) end
  return is
end

-- ---- the ranks of experts

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end

-- Returns the ranks that cut each expert's matrices: as many as tp unless the row says otherwise.
local function expert_tp(row) return count(row, "etp", count(row, "tp")) end

-- An ep axis must be a part of `data`, the ranks with different samples. Megatron's may also extend
-- over cp and tp. Ranks that share sequences then count as ranks with fewer samples each, and tp
-- cuts experts if ep extends over it. In both cases a rank has equally many bytes of experts and
-- equally many products.
function m.place(row, data, shared)
  local at = { data = data, cp = shared, micro = count(row, "micro_batch"), ep = 1 }
  local ep = count(row, "ep", 1)
  if ep == 1 then return at end
  if shared > 1 and at.micro % shared == 0 then
    at.data, at.cp, at.micro = data * shared, 1, at.micro // shared
  end
  at.ep = gcd(at.data, ep)
  return at
end

-- True if tp cuts experts that `ep` of the ranks with different samples share.
function m.cuts_experts(row, ep)
  local tp = count(row, "tp")
  return tp > 1 and count(row, "ep", 1) * expert_tp(row) >= ep * tp
end

-- Returns the blocks of each part of the pipeline (of each chunk if a rank has several), if the row
-- states those of the first and the last, or counts the embedding and the loss as blocks (MLPerf's
-- ASYM_PP_EMBED and ASYM_PP_LOSS); nil: evenly.
function m.split(row)
  local layers, notes = count(row, "n_layers"), row.notes or ""
  local first = tonumber(notes:match "decoder%-first%-pipeline%-num%-layers=(%d+)")
  local last = tonumber(notes:match "decoder%-last%-pipeline%-num%-layers=(%d+)")
  local parts = count(row, "pp")
  local both = notes:find "account%-for%-embedding" or has(row, "model", "account_for_embedding")
  local asymmetric = notes:find "ASYM_PP_EMBED=True" and notes:find "ASYM_PP_LOSS=True"
  if asymmetric then parts = parts * count(row, "vp", 1) end
  if both or asymmetric then
    if (layers + 2) % parts ~= 0 then return nil end
    first, last = (layers + 2) // parts - 1, (layers + 2) // parts - 1
  end
  if not first and not last then return nil end
  local between = parts - (first and 1 or 0) - (last and 1 or 0)
  local rest, split = layers - (first or 0) - (last or 0), {}
  if between > 0 and rest % between ~= 0 then refuse("%d blocks are not shared out over %d stages", rest, between) end
  for i = 1, parts do split[i] = i == 1 and first or i == parts and last or rest // between end
  return split
end

-- Megatron's default width of an attention head is d_model / heads.
function m.model(row, cut_experts)
  if (row.mla or "") ~= "" then refuse("latent attention (MLA) is not in this version") end
  if (row.hybrid_pattern or "") ~= "" then refuse("blocks of Mamba are not in this version") end
  if (row.mtp_layers or "") ~= "" and row.mtp_layers ~= "0" then refuse("prediction of several tokens (MTP) is not in this version") end
  if has(row, "notes", "encoder") then refuse("an encoder beside the decoder is not in this version") end
  local dim, heads, layers, vocab = count(row, "d_model"), count(row, "n_heads"), count(row, "n_layers"), count(row, "vocab")
  local kv_heads, head_dim = count(row, "n_kv_heads", heads), count(row, "head_dim", dim // heads)
  local norm, tied = norm_of(row), flag(row, "untie_embeddings") == false
  local rope = has(row, "position_embedding", "^rope")
  -- A table of positions cannot be trained here by ranks that share sequences: 1 / 50 of the
  -- embedding is left out.
  local learned = has(row, "position_embedding", "^learned") and count(row, "cp", 1) == 1
  -- Llama-like recipes switch biases off (--disable-bias-linear); GPT's keep them.
  local bias = not is_gated(row) and has(row, "normalization", "^layer")
  local has_experts = (row.moe_experts or "") ~= "" and mixture_layers(row, layers) or {}
  local function block(i)
    return nn.block { ln_1 = norm(dim), ln_2 = norm(dim),
      attention = nn.attention { dim = dim, heads = heads, kv_heads = kv_heads, head_dim = head_dim, bias = bias,
        causal = not has(row, "model", "^bert"),
        rope_theta = rope and 10000.0 or nil },
      mlp = has_experts[i] and mixture(row, dim, cut_experts) or mlp(row, dim, count(row, "d_ff"), bias),
      tp_col = { "attention.wq", "attention.wk", "attention.wv" }, tp_row = { "attention.wo" },
      forward = function(self, x)
        local h = x + self.attention(self.ln_1(x))
        return h + self.mlp(self.ln_2(h))
      end }
  end
  local embed = nn.embedding(vocab, dim)
  return nn.module { embed = embed, position = learned and nn.position(count(row, "seq"), dim) or nil,
    layers = nn.list(layers, block), norm = norm(dim),
    head = nn.linear(dim, vocab, tied and { weight = embed } or nil), tp_vocab = { "embed", "head" },
    forward = function(self, tokens, labels)
      local x = self.embed(tokens)
      if learned then x = self.position(x) end
      return nn.cross_entropy(self.head(self.norm(self.layers(x))), labels)
    end }
end

-- ---- options

local function number(row, key) return tonumber((row[key] or ""):match "^[%d%.]+") or 0 end

-- True if attention's kernels write their scores, which the row may state. Otherwise Transformer
-- Engine chooses flash attention, while Megatron's own block ("local") writes scores unless flash
-- attention is requested.
function m.writes_scores(row)
  local backend = (row.attention_backend or ""):lower()
  if backend:find "flash" or backend:find "^fused" or backend:find "cudnn" then return false end
  if backend:find "unfused" or backend:find "local" or has(row, "transformer_impl", "^local") then return true end
  -- Flash attention has a deterministic backward pass since 2.4.1 (April 2024). With an older one,
  -- Transformer Engine uses other kernels.
  local image = row.framework:match "NGC PyTorch (2%d%.%d%d)"
  return backend == "" and has(row, "env", "nvte_allow_nondeterministic_algo=0") and image ~= nil and image < "24.05"
end

-- Returns the profile's ops with the row's changes. Bytes for each score (Korthikanti et al., arXiv
-- 2205.05198, 4.1): the softmax takes two; with dropout there are a mask and the masked softmax
-- too. The mask of hidden dropout has one byte for each element of each residual sum.
function m.ops(row)
  local ops = {}
  if m.writes_scores(row) then
    ops.attention = { kernels = 6, passes = 1, scores = number(row, "attention_dropout") > 0 and 5 or 2 }
    ops.attention_grad = { kernels = 9, passes = 1 }
  end
  if number(row, "hidden_dropout") > 0 then ops.add = { kernels = 1, passes = 1.7, saved = 1 } end
  ops.layernorm = { kernels = 1, passes = 1 }
  return ops
end

-- Megatron can store the inputs of an MLP's activation in 8 bits (activation_func_fp8_input_store).
-- NeMo's recipe for LoRA with 8-bit weights switches it on.
function m.keeps_bytes(ops)
  local own = {}
  for name, op in pairs(ops) do own[name] = op end
  for _, name in ipairs { "silu", "mul" } do
    local op = { keeps_bytes = true }
    for key, value in pairs(ops[name] or { kernels = 1, passes = 1 }) do op[key] = value end
    own[name] = op
  end
  return own
end

-- Transformer Engine takes its own cuBLAS workspace from PyTorch: 32 MiB since Hopper and 4 MiB
-- before (module/base.py, get_cublas_workspace_size_bytes), and four more for grouped products
-- (get_multi_stream_cublas_workspace).
function m.library(row, gpu)
  if has(row, "transformer_impl", "^local") or (row.transformer_impl or "") == "" then return nil end
  local one = (gpu and (gpu.arch == "Hopper" or gpu.arch == "Blackwell") and 32 or 4) << 20
  local grouped = (row.moe_experts or "") ~= "" and cells.flag(row, "moe_grouped_gemm")
  return (grouped and 5 or 1) * one
end

-- Products of weights' gradients. By default they add to the fp32 buffer themselves. Autograd then
-- gets a tensor that nobody reads; Transformer Engine keeps one for each size. With
-- --no-gradient-accumulation-fusion each makes a tensor, which a hook adds.
function m.gradients(row, own)
  local te = not has(row, "transformer_impl", "^local")
  own.makes_gradients = true
  own.keeps_returned = te and not has(row, "fusions_off", "no%-gradient%-accumulation%-fusion") or nil
end

-- True if communication over tp overlaps with products (tp_comm_overlap). If the row does not say,
-- recipes of NeMo and Megatron-Bridge overlap with sequence parallelism.
function m.overlaps(row)
  local told = flag(row, "overlap_tp")
  if told == nil then told = has(row, "framework", "nemo") or has(row, "framework", "^megatron%-bridge") end
  return told and cells.sequence(row) and count(row, "tp") > 1 or nil
end

-- A step that was captured as one CUDA graph starts at once; the host takes about a microsecond for
-- each node.
function m.graph(row, own)
  if not has(row, "cuda_graph", "full_cuda_graph=[1t]") then return end
  own.kernel_s, own.collective_s, own.message_s, own.pass_s, own.tensor_s = 1e-6, 1e-6, 0, 0, 0
end

-- Returns the bytes of cuBLAS's workspace that the environment sets, as in
-- CUBLAS_WORKSPACE_CONFIG=:4096:8 (KiB, and how often); nil: none.
function m.workspace(row)
  local config, bytes = (row.env or ""):match "CUBLAS_WORKSPACE_CONFIG=([:%d]+)", 0
  for kib, times in (config or ""):gmatch ":(%d+):(%d+)" do bytes = bytes + 1024 * tonumber(kib) * tonumber(times) end
  return bytes > 0 and bytes or nil
end

return m
