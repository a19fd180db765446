-- Published runs of Megatron-Core, Megatron-LM, NeMo, Megatron-Bridge and Megatron-DeepSpeed:
-- builds the model that a row's cells state, and computes the effect of the framework's options on
-- memory and passes.
local recipes, schedules = require "tandem.published.recipes", require "tandem.published.schedules"
local cells, nn, experts, gpus = require "tandem.published.cells", require "tandem.nn", require "tandem.experts", require "tandem.gpus"
local blocks, hybrid = require "tandem.published.blocks", require "tandem.published.hybrid"
local refuse, count, has, flag = cells.refuse, cells.count, cells.has, cells.flag
local m = {}

-- ---- the model

-- Returns true if the row states the parts of its blocks. Only tables with Megatron's own columns
-- do.
function m.states_blocks(row) return (row.normalization or "") ~= "" and (row.activation or "") ~= "" end

local function norm_of(row)
  if has(row, "normalization", "^layer") then return nn.layernorm end
  if has(row, "normalization", "^rms") then return nn.rmsnorm end
  refuse("normalization is not known: %s", row.normalization)
end

local function is_gated(row) return has(row, "activation", "glu") end

local function activation_of(row)
  if has(row, "activation", "^swiglu") or has(row, "activation", "^silu") then return nn.silu end
  -- A squared ReLU is planned as GELU, which reads and writes as many bytes.
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

-- Returns the number of rows that the products of experts compute, divided by the number for
-- balanced experts that drop no token. With padding (--moe-pad-expert-input-to-capacity), this is
-- the capacity factor. A factor below 1 drops tokens.
local function capacity(row)
  local factor = tonumber((row.moe_capacity or ""):match "(%d+%.?%d*)")
  if not factor or factor <= 0 or (row.moe_capacity or ""):find "^%s*%-" then return 1 end
  return (has(row, "moe_capacity", "pad") or factor < 1) and factor or 1
end

-- Makes a mixture of experts. Every expert gets the same number of tokens: Megatron drops none, and
-- its routers are assumed to be balanced. If the row gives moe_latent, one product makes tokens
-- narrower before the exchange, and another makes them wide again after it
-- (core/transformer/moe/moe_layer.py). The plan's router reads the narrow tokens. cut: true if tp
-- splits the matrices of experts.
local function mixture(row, dim, cut)
  local width = count(row, "moe_latent", dim)
  local routed = nn.moe { dim = width, hidden = count(row, "moe_ffn", count(row, "d_ff")), experts = count(row, "moe_experts"),
    top_k = count(row, "moe_topk", 1), capacity_factor = capacity(row), gated = is_gated(row) }
  local col, back = cut and { "routed.w1" } or {}, cut and { "routed.w2" } or {}
  if cut and is_gated(row) then col[2] = "routed.w3" end
  local narrows = width < dim
  local into, out = narrows and nn.linear(dim, width) or nil, narrows and nn.linear(width, dim) or nil
  local function routes(self, x) return narrows and self.out(self.routed(self.into(x))) or self.routed(x) end
  if (row.moe_shared_ffn or "") == "" then
    return nn.module { into = into, routed = routed, out = out, tp_col = col, tp_row = back, forward = routes }
  end
  return nn.module { into = into, routed = routed, out = out, shared = mlp(row, dim, count(row, "moe_shared_ffn"), false), tp_col = col, tp_row = back,
    forward = function(self, x) return routes(self, x) + self.shared(x) end }
end

-- ---- the ranks of experts

local function gcd(a, b) return b == 0 and a or gcd(b, a % b) end
m.common_divisor = gcd

-- Returns the number of ranks over which each expert's matrices are divided: the size of tp, unless
-- the row says otherwise. All recipes of Megatron-Bridge set expert_tensor_parallel_size = 1
-- (067f987d: perf_recipes and recipes).
local function expert_tp(row) return count(row, "etp", has(row, "framework", "^megatron%-bridge") and 1 or count(row, "tp")) end

-- Returns true if the plan's ep is folded: it takes its ranks first from tp, and then from the
-- `data` ranks.
function m.folds(row, data)
  local tp, ep = count(row, "tp"), count(row, "ep", 1)
  return tp > 1 and expert_tp(row) == 1 and cells.sequence(row) and ep % tp == 0 and data % (ep // tp) == 0
end

-- Returns the plan's axes for experts: the degree ep, whether it is folded, the data ranks, cp and
-- the micro-batch. data: the number of ranks with different samples. shared: the number of ranks
-- that share a sequence.
--
-- Megatron's ep may take ranks of tp or cp. If tp does not split experts
-- (--expert-tensor-parallel-size 1), it takes ranks of tp first, and each of them then has its own
-- tokens; a folded ep plans this. Any other ep of a plan takes only data ranks. So the ranks of cp
-- are planned as data ranks with fewer samples each. If tp splits the experts, a rank then has as
-- many bytes of experts and as many products as in Megatron.
--
-- With tp, a plan cannot exchange the heads of a Mamba mixer among the ranks that share a sequence.
-- So these ranks are planned as data ranks, too.
function m.place(row, data, shared)
  local at = { data = data, cp = shared, micro = count(row, "micro_batch"), ep = 1 }
  local ep = count(row, "ep", 1)
  local scans = has(row, "hybrid_pattern", "^[^/]*m") and count(row, "tp") > 1
  if ep == 1 and not scans then return at end
  if shared > 1 and at.micro % shared == 0 then
    at.data, at.cp, at.micro = data * shared, 1, at.micro // shared
  end
  local stages = count(row, "pp", 1)
  if cells.is_open(row.etp) and count(row, "n_gpus") % (ep * expert_tp(row) * stages) ~= 0 and count(row, "n_gpus") % (ep * stages) == 0 then
    row.etp = "1" -- with the default size of etp, the run could not start
    cells.note("etp is not stated; 1 is assumed, because %d x tp %d x pp %d ranks are too many", ep, count(row, "tp"), stages)
  end
  local cut = ep * expert_tp(row)
  if count(row, "n_gpus") % (cut * stages) ~= 0 then
    refuse("%d GPUs do not divide over pp %d x ep %d x expert tensor parallel size %d", count(row, "n_gpus"), stages, ep, expert_tp(row))
  end
  at.folded = m.folds(row, at.data)
  if at.folded then at.ep = ep return at end
  at.ep = gcd(at.data, count(row, "tp") > 1 and cut % count(row, "tp") == 0 and cut // count(row, "tp") or ep)
  return at
end

-- Returns true if tp splits the matrices of the experts in the plan. ep: the number of data ranks
-- over which the plan divides the experts.
function m.cuts_experts(row, ep)
  local tp = count(row, "tp")
  return tp > 1 and count(row, "ep", 1) * expert_tp(row) >= ep * tp
end

-- Returns the number of blocks in each part of --pipeline-model-parallel-layout, or nil if the cell
-- is empty. In "Et*2|(tt|)*5t|tmL", "|" separates parts, t is a block, m a head that predicts a
-- further token, E the embedding and L the loss (transformer/pipeline_parallel_layer_layout.py).
function m.layout(row)
  if cells.is_open(row.pipeline_layout) then return nil end
  local text = row.pipeline_layout:gsub("[\\%s,\"']", "")
  text = text:gsub("%(([^()]*)%)%*(%d+)", function(part, times) return part:rep(tonumber(times)) end)
  text = text:gsub("([%a|])%*(%d+)", function(part, times) return part:rep(tonumber(times)) end)
  local split = {}
  for part in (text .. "|"):gmatch "([^|]*)|" do split[#split + 1] = select(2, part:gsub("[tm]", "")) end
  return split
end

-- Returns the number of blocks in each part of the pipeline, or nil if all parts are equal. A part
-- is a stage, or a chunk if a rank has several. The row states the layout, or the numbers of the
-- first and the last part, or that the embedding and the loss count as blocks (MLPerf's
-- ASYM_PP_EMBED and ASYM_PP_LOSS).
function m.split(row)
  local layers, notes, layout = count(row, "n_layers"), row.notes or "", m.layout(row)
  local blocks = 0
  for _, n in ipairs(layout or {}) do blocks = blocks + n end
  if layout and blocks == layers + hybrid.further_blocks(row) then return layout end
  if layout then cells.note("the pipeline layout has %d blocks, but the model has %d; equal stages are planned", blocks, layers) end
  local first = tonumber(notes:match "decoder%-first%-pipeline%-num%-layers=(%d+)")
  local last = tonumber(notes:match "decoder%-last%-pipeline%-num%-layers=(%d+)")
  local parts = count(row, "pp")
  local _, own = hybrid.read(row)
  if own and #own == parts * count(row, "vp", 1) then
    own[#own] = own[#own] + hybrid.further_blocks(row)
    return own
  end
  local both = notes:find "account%-for%-embedding" or has(row, "model", "account_for_embedding") or recipes.accounts(row)
  local asymmetric = notes:find "ASYM_PP_EMBED=True" and notes:find "ASYM_PP_LOSS=True"
  if both or asymmetric then
    parts = parts * count(row, "vp", 1)
    if (layers + 2) % parts ~= 0 then return nil end
    first, last = (layers + 2) // parts - 1, (layers + 2) // parts - 1
  end
  local further, whole = hybrid.further_blocks(row), parts * count(row, "vp", 1)
  if not first and not last then
    if further == 0 or parts == 1 or layers % whole ~= 0 then return nil end
    parts, first = whole, layers // whole
  end
  local between = parts - (first and 1 or 0) - (last and 1 or 0)
  local rest, split = layers - (first or 0) - (last or 0), {}
  if between > 0 and rest % between ~= 0 then refuse("%d blocks are not shared out over %d stages", rest, between) end
  for i = 1, parts do split[i] = i == 1 and first or i == parts and last or rest // between end
  split[parts] = split[parts] + further  -- heads that predict further tokens are on the last stage
  return split
end

-- Returns Megatron's interleaved schedule if the row states how many micro-batches pass through a
-- chunk before the next chunk's turn. Returns nil if it does not; the number is then that of the
-- stages.
function m.schedule(row)
  local at_once = tonumber((row.notes or ""):match "microbatch%-group%-size%-per%-virtual%-pipeline%-stage=(%d+)")
  return at_once and schedules.interleaved(at_once)
end

-- Returns the attention of the row, and its matrices that tp splits by columns. Megatron's default
-- for the width of a head is d_model / heads.
local function attention_of(row, shape)
  local dim, heads = count(row, "d_model"), count(row, "n_heads")
  local rank = blocks.latent(row, "q_lora")
  if blocks.latent(row, "kv_lora") > 0 then
    return nn.latent_attention { dim = dim, heads = heads, kv_rank = blocks.latent(row, "kv_lora"), q_rank = rank > 0 and rank or nil,
      nope_dim = blocks.latent(row, "qk_head"), rope_dim = blocks.latent(row, "qk_pos"), value_dim = blocks.latent(row, "v_head") },
      { "wq", "wk_b", "wv_b" }
  end
  return nn.attention { dim = dim, heads = heads, kv_heads = count(row, "n_kv_heads", heads),
    head_dim = count(row, "head_dim", dim // heads), bias = shape.bias, causal = shape.causal,
    qk_norm = blocks.norms_heads(row) or nil,
    rope_theta = shape.rope and 10000.0 or nil }, { "wq", "wk", "wv" }
end

-- Makes a block: one layer of a hybrid (`second` is nil), or attention followed by an MLP. columns:
-- the matrices of `first` that tp splits by columns.
local function block_of(norm, dim, first, columns, second)
  local cut = {}
  for i, name in ipairs(columns) do cut[i] = "first." .. name end
  return nn.block { ln_1 = norm(dim), first = first, ln_2 = second and norm(dim) or nil, second = second,
    tp_col = cut, tp_row = #columns > 0 and { "first.wo" } or {},
    forward = function(self, x)
      local h = x + self.first(self.ln_1(x))
      return second and h + self.second(self.ln_2(h)) or h
    end }
end

-- Makes a mixer of Mamba-2. Its defaults are Megatron's (mamba_state_dim, mamba_head_dim,
-- mamba_num_groups). The inner width is twice the model's width. The scan works on 128 tokens at a
-- time.
local function mamba(row, dim)
  local notes = row.notes or ""
  local function option(name, default) return math.tointeger(tonumber(notes:match("mamba%-" .. name .. "=(%d+)"))) or default end
  local head = option("head%-dim", 64)
  return nn.mamba2 { dim = dim, heads = option("num%-heads", count(row, "mamba_heads", 2 * dim // head)), head_dim = head,
    groups = option("num%-groups", 8), state = option("state%-dim", 128), chunk = 128 }
end

-- Makes the blocks of a hybrid from its letters. Gated delta nets are planned as attention.
local function hybrid_layers(row, shape, letters)
  local layers, dim = {}, count(row, "d_model")
  if letters:find "[GD]" then cells.note("the variants of attention in %s are planned as plain attention", row.hybrid_pattern) end
  for letter in letters:gmatch "." do
    layers[#layers + 1] = function()
      local first, columns = nil, {}
      if letter == "M" then first = mamba(row, dim)
      elseif letter == "E" then first = mixture(row, dim, shape.cut_experts)
      elseif letter == "-" then first = mlp(row, dim, count(row, "d_ff"), shape.bias)
      else first, columns = attention_of(row, shape) end
      return block_of(shape.norm, dim, first, columns)
    end
  end
  return layers
end

local function plain_layers(row, shape)
  local layers, dim, n = {}, count(row, "d_model"), count(row, "n_layers")
  local has_experts = not cells.is_open(row.moe_experts) and blocks.mixture_layers(row, n) or {}
  for i = 1, n do
    layers[i] = function()
      local first, columns = attention_of(row, shape)
      return block_of(shape.norm, dim, first, columns,
        has_experts[i] and mixture(row, dim, shape.cut_experts) or mlp(row, dim, count(row, "d_ff"), shape.bias))
    end
  end
  return layers
end

-- T5: a sequence has the encoder's tokens, then the decoder's (--decoder-seq-length). If the row
-- does not state the number of the decoder's tokens, 128 is assumed, as in Megatron's examples and
-- tests. T5's relative position bias is not planned.
local function decoder_tokens(row) return count(row, "decoder_seq", 128) end
function m.tokens(row) return count(row, "seq") + (has(row, "model", "^t5") and decoder_tokens(row) or 0) end

local function encoder_and_decoder(row, shape)
  if cells.is_open(row.decoder_seq) then cells.note("the decoder's tokens are not stated; %d are assumed", decoder_tokens(row)) end
  local dim, vocab, seq = count(row, "d_model"), count(row, "vocab"), count(row, "seq")
  local n, target = count(row, "n_layers"), decoder_tokens(row)
  local embed, bidirectional = nn.embedding(vocab, dim), {}
  for key, value in pairs(shape) do bidirectional[key] = value end
  bidirectional.causal = false
  local function encodes()
    local first, columns = attention_of(row, bidirectional)
    return block_of(shape.norm, dim, first, columns, mlp(row, dim, count(row, "d_ff"), shape.bias))
  end
  local function decodes()
    local first, columns = attention_of(row, shape)
    local own = block_of(shape.norm, dim, first, columns)
    return nn.block { own = own, ln = shape.norm(dim), cross = attention_of(row, bidirectional), ln_2 = shape.norm(dim),
      mlp = mlp(row, dim, count(row, "d_ff"), shape.bias), tp_col = { "cross.wq", "cross.wk", "cross.wv" }, tp_row = { "cross.wo" },
      forward = function(self, x, memory)
        local h = self.own(x)
        h = h + self.cross(self.ln(h), { memory = memory })
        return h + self.mlp(self.ln_2(h))
      end }
  end
  return nn.module { embed = embed, encoder = nn.list(n, encodes), decoder = nn.list(count(row, "decoder_layers", n), decodes), norm = shape.norm(dim),
    head = nn.linear(dim, vocab, { weight = embed }), tp_vocab = { "embed", "head" },
    forward = function(self, tokens, labels)
      local memory, x = self.embed(nn.span(tokens, 0, seq)), self.embed(nn.span(tokens, seq, target))
      for _, layer in ipairs(self.encoder) do memory = layer(memory) end
      for _, layer in ipairs(self.decoder) do x = layer(x, memory) end
      return nn.cross_entropy(self.head(self.norm(x)), nn.span(labels, seq, target))
    end }
end

function m.model(row, cut_experts)
  row.names_parts = true -- the model's modules have the names that `blocks.recomputed` uses
  if has(row, "notes", "encoder") and not has(row, "model", "^t5") then refuse("an encoder beside the decoder is not in this version") end
  local dim, vocab, tied = count(row, "d_model"), count(row, "vocab"), flag(row, "untie_embeddings") == false
  local shape = { norm = norm_of(row), rope = has(row, "position_embedding", "^ro[pt]"), causal = not has(row, "model", "^bert"),
    cut_experts = cut_experts,
    -- Llama-like recipes switch biases off (--disable-bias-linear). GPT's recipes keep them.
    bias = not is_gated(row) and has(row, "normalization", "^layer") and not has(row, "model", "^mpt") }
  if has(row, "model", "^t5") then return encoder_and_decoder(row, shape) end
  -- If ranks share sequences (cp > 1), the learned table of positions is not planned, because a
  -- plan cannot train one there. Its size would be about 1 / 50 of the embedding's.
  local learned = has(row, "position_embedding", "^learned") and count(row, "cp", 1) == 1
  local letters, _, head_letters = hybrid.read(row)
  local layers = letters and hybrid_layers(row, shape, letters) or plain_layers(row, shape)
  -- Each head that predicts a further token (MTP) is planned as one more block. Two parts of it are
  -- not planned: the product that joins the vectors of two tokens, and the time of its head and
  -- loss. loss.lua counts their bytes.
  local further = count(row, "mtp_layers", 0)
  if further > 0 then cells.note("the heads that predict further tokens are planned as %d more blocks", further) end
  local head = (head_letters or "") ~= "" and hybrid_layers(row, shape, head_letters) or { layers[#layers] }
  for _ = 1, further do
    for _, layer in ipairs(head) do layers[#layers + 1] = layer end
  end
  local embed = nn.embedding(vocab, dim)
  return nn.module { embed = embed, position = learned and nn.position(count(row, "seq"), dim) or nil,
    layers = nn.list(#layers, function(i) return layers[i + 1]() end), norm = shape.norm(dim),
    head = nn.linear(dim, vocab, tied and { weight = embed } or nil), tp_vocab = { "embed", "head" },
    forward = function(self, tokens, labels)
      local x = self.embed(tokens)
      if learned then x = self.position(x) end
      return nn.cross_entropy(self.head(self.norm(self.layers(x))), labels)
    end }
end

-- ---- options

local function number(row, key) return tonumber((row[key] or ""):match "^[%d%.]+") or 0 end

-- Names the kernel of attention on GPUs older than Ampere, on which flash attention 2 does not run, unless the row names one. (1.x runs
-- on T4.) Only frameworks that call PyTorch's scaled_dot_product_attention have another kernel there (sdp_utils.cpp:
-- check_mem_efficient_hardware_support).
-- kind: documented; the README of Dao-AILab/flash-attention
function m.name_old_kernel(row)
  local chip = gpus.gpus[gpus.find(row.gpu) or ""]
  if chip and chip.arch == "Volta" and cells.is_open(row.attention_backend) then row.attention_backend = "unfused" end
end

-- Returns true if attention writes its scores to memory. The row may name the kernel. If it does
-- not, Transformer Engine is assumed to choose flash attention. Megatron's own block ("local")
-- writes scores unless flash attention is requested.
function m.writes_scores(row)
  local backend = (row.attention_backend or ""):lower()
  if backend:find "flash" or backend:find "^fused" or backend:find "cudnn" then return false end
  if backend:find "unfused" or backend:find "local" or has(row, "transformer_impl", "^local") then return true end
  -- Flash attention has a deterministic backward pass since 2.4.1 (April 2024). With an older one,
  -- Transformer Engine uses other kernels.
  local image = row.framework:match "NGC PyTorch (2%d%.%d%d)"
  return backend == "" and has(row, "env", "nvte_allow_nondeterministic_algo=0") and image ~= nil and image < "24.05"
end

-- Adds to the attention ops the kernels of a ring of `n` ranks. In a model with experts, the ranks
-- of cp are planned as data ranks (`place`), but in Megatron they still pass keys and values around
-- a ring. Each rank of the ring costs about twelve more ops in each direction: copies, a message
-- each way, the attention kernel, and corrections (Transformer Engine,
-- attention/dot_product_attention/context_parallel.py). A plan that gathers keys already has copies
-- and messages, so its profile counts only the kernels (ring_kernels).
-- kind: source; ops of a step of the ring, counted in its source
local ring_ops = 12
function m.adds_ring(ops, n)
  for _, name in ipairs { "attention", "attention_grad" } do
    local own = {}
    for key, value in pairs(ops[name] or { kernels = 1, passes = 1 }) do own[key] = value end
    own.kernels = own.kernels + ring_ops * n
    ops[name] = own
  end
end

-- Returns true if PyTorch computes the softmax of the scores in fp32
-- (core/fusions/fused_softmax.py: forward_torch_softmax). Then four bytes are saved for each score
-- instead of two.
local function unfused_softmax(row) return has(row, "fusions_off", "no%-masked%-softmax%-fusion") end

-- Returns the ops of the profile that the row changes. Attention that writes scores saves for each
-- score two bytes of the softmax and, with dropout, one more for the mask and two for the masked
-- softmax (Korthikanti et al., arXiv 2205.05198, 4.1). Hidden dropout saves a mask of one byte for
-- each element of each residual sum.
function m.ops(row)
  local ops = {}
  if m.writes_scores(row) then
    ops.attention = { kernels = 6, passes = 1, scores = (number(row, "attention_dropout") > 0 and 5 or 2) + (unfused_softmax(row) and 2 or 0) }
    ops.attention_grad = { kernels = 9, passes = 1 }
    ops.attention_wide, ops.attention_wide_grad = ops.attention, ops.attention_grad  -- for latent attention (MLA)
  end
  if number(row, "hidden_dropout") > 0 then ops.add = { kernels = 1, passes = 1.7, saved = 1 } end
  ops.layernorm = { kernels = 1, passes = 1 }
  -- If experts have no gate, a separate kernel multiplies the output of GELU by the router's
  -- weights. It saves the output of GELU (core/transformer/moe/experts.py: bias_act_func).
  if not cells.is_open(row.moe_experts) and cells.is_open(row.hybrid_pattern) and has(row, "activation", "^gelu") then
    ops.gelu = { kernels = 1, passes = 2, saved = 2 }
  end
  return ops
end

-- Returns `ops` with a mark on each op that saves its inputs in 8 bits. Megatron can do so for the
-- activation of an MLP (activation_func_fp8_input_store), and NeMo's recipe for LoRA with 8-bit
-- weights requests it. With 8-bit attention (FP8_DPA), Transformer Engine also saves queries, keys
-- and values in 8 bits.
function m.keeps_bytes(row, ops)
  local own = {}
  for name, op in pairs(ops) do own[name] = op end
  local names = { "silu", "mul" }
  if has(row, "notes", "fp8_dpa=[1t]") or has(row, "env", "nvte_fp8_dpa_bwd=1") then names[3] = "attention" end
  for _, name in ipairs(names) do
    local op = { keeps_bytes = true }
    for key, value in pairs(ops[name] or { kernels = 1, passes = 1 }) do op[key] = value end
    own[name] = op
  end
  return own
end

-- Returns the bytes of Transformer Engine's cuBLAS workspaces, or nil if the row does not use
-- Transformer Engine. It takes one workspace from PyTorch: 32 MiB since Hopper and 4 MiB before
-- (module/base.py, get_cublas_workspace_size_bytes). Grouped products have four more
-- (get_multi_stream_cublas_workspace). Products that overlap with tp's communication have three
-- more, one for each stream (cpp_extensions/gemm.py: get_cublas_workspace, _NUM_MAX_UB_STREAMS).
function m.library(row, gpu)
  if has(row, "transformer_impl", "^local") or (row.transformer_impl or "") == "" then return nil end
  local one = (gpu and (gpu.arch == "Hopper" or gpu.arch == "Blackwell") and 32 or 4) << 20
  local grouped = (row.moe_experts or "") ~= "" and cells.flag(row, "moe_grouped_gemm")
  return (1 + (grouped and 4 or 0) + (m.overlaps(row) and 3 or 0)) * one
end

-- Sets where the profile puts weight gradients. By default, the product for a weight gradient adds
-- to the fp32 buffer itself. Autograd still needs a tensor of the gradient's size, which nothing
-- reads. Transformer Engine keeps one such tensor for each size. With
-- --no-gradient-accumulation-fusion, each product makes a tensor, and a hook adds it to the buffer.
function m.gradients(row, own)
  local te = not has(row, "transformer_impl", "^local")
  own.makes_gradients = true
  own.keeps_returned = te and not has(row, "fusions_off", "no%-gradient%-accumulation%-fusion") or nil
end

-- Returns true if communication over tp overlaps with products (tp_comm_overlap). If the row does not say,
-- runs of NeMo and Megatron-Bridge with sequence parallelism are assumed to overlap, because their recipes
-- request it.
function m.overlaps(row)
  local told = flag(row, "overlap_tp")
  if told == nil then told = has(row, "framework", "nemo") or has(row, "framework", "^megatron%-bridge") end
  return told and cells.sequence(row) and count(row, "tp") > 1 or nil
end

-- Returns the fraction of an exchange between the ranks of ep for which products wait, or nil if ep
-- is 1. DeepEP and HybridEP (--moe-token-dispatcher-type flex) send a token once to each node that
-- has one of its experts. A NIC of 48 GB/s then moves 43 GB/s (DeepEP's README, EP16). With
-- --overlap-moe-expert-parallel-comm, another micro-batch computes during the exchange.
function m.exchange_part(row, per_node, n_micro, folded)
  local ep, k = count(row, "ep", 1), count(row, "moe_topk", 1)
  if ep == 1 then return nil end
  local nodes, part = math.max(1, count(row, "ep", 1) * expert_tp(row) // per_node), 1
  if recipes.is_flex(row) and nodes > 1 then part = math.min(1, (1 - (1 - 1 / nodes) ^ k) * nodes / k * 48 / 43) end
  -- In Megatron with sequence parallelism, a rank exchanges only its own part of the tokens. In a plan, every
  -- rank of tp exchanges all of them, unless ep is folded (`place`).
  if cells.sequence(row) and expert_tp(row) < count(row, "tp") and not folded then part = part * expert_tp(row) / count(row, "tp") end
  if recipes.overlaps_ep(row) then part = part * recipes.longer_part(row, n_micro) end
  return part
end

-- Returns true if a step or a layer was captured as a CUDA graph. The host then launches the graph
-- in one call, which takes it about a microsecond for each kernel. On the device, each kernel is
-- assumed to start 2 us sooner (published/cluster.lua).
function m.is_graph(row) return has(row, "cuda_graph", "cuda_graph=[1t]") or cells.switch(row.cuda_graph) == true or has(row, "cuda_graph", "^full") and not has(row, "cuda_graph", "=") end
-- Returns true if the host runs the Python modules of Megatron-Core, as in Megatron-Bridge and
-- NeMo. Then the host times that were fitted to Megatron-Core apply. NeMo's own rows say little
-- about host times: their models are large, so the device never waits for the host.
function m.runs_modules(row)
  return not m.is_graph(row) and (has(row, "framework", "^megatron%-bridge") or has(row, "framework", "^nemo"))
end
function m.graph(row, own)
  if not m.is_graph(row) then return end
  own.kernel_s, own.collective_s, own.message_s, own.pass_s, own.tensor_s = 1e-6, 1e-6, 0, 0, 0
end

-- Returns the attention kernel if it differs from the profile's, otherwise nil. NeMo's launcher
-- switched cuDNN's attention off in its releases 24.01 to 24.07 (launcher_scripts/conf/config.yaml:
-- NVTE_FUSED_ATTN: 0). Transformer Engine then calls FlashAttention-2.
-- kind: source; NeMo-Framework-Launcher, tags 24.01 to 24.09
function m.attention(row, release)
  if not has(row, "framework", "^nemo") or not release then return nil end
  return release >= "2024-01" and release <= "2024-08" and "flash2" or nil
end

-- Returns the bytes of cuBLAS's workspace that the environment sets, or nil if it sets none.
-- CUBLAS_WORKSPACE_CONFIG=:4096:8 means 8 times 4096 KiB.
function m.workspace(row)
  local config, bytes = (row.env or ""):match "CUBLAS_WORKSPACE_CONFIG=([:%d]+)", 0
  for kib, times in (config or ""):gmatch ":(%d+):(%d+)" do bytes = bytes + 1024 * tonumber(kib) * tonumber(times) end
  return bytes > 0 and bytes or nil
end

return m
