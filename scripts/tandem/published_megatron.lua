-- Runs of Megatron-Core, Megatron-LM, NeMo, Megatron-Bridge and Megatron-DeepSpeed among the published rows: the model that the
-- cells state, and the memory and passes that follow from the framework's options.
local cells, nn, experts = require "tandem.published_cells", require "tandem.nn", require "tandem.experts"
local refuse, count, has, flag = cells.refuse, cells.count, cells.has, cells.flag
local m = {}

-- ---- the model

-- Only a row whose table has Megatron's own columns says how its blocks are made.
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

-- Tokens are shared out evenly over the experts: Megatron drops none, and its routers are balanced.
local function mixture(row, dim)
  local routed = nn.moe { dim = dim, hidden = count(row, "moe_ffn", count(row, "d_ff")), experts = count(row, "moe_experts"),
    top_k = count(row, "moe_topk", 1), capacity_factor = 1, gated = is_gated(row) }
  if (row.moe_shared_ffn or "") == "" then return routed end
  return nn.module { routed = routed, shared = mlp(row, dim, count(row, "moe_shared_ffn"), false),
    forward = function(self, x) return self.routed(x) + self.shared(x) end }
end

-- Which layers have experts: a period ("2": every second), or Python's list ("([0]*1+[1]*15)"); all of them where nothing is said.
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

-- Megatron's default width of an attention head is d_model / heads.
function m.model(row)
  if (row.mla or "") ~= "" then refuse("latent attention (MLA) is not in this version") end
  if (row.hybrid_pattern or "") ~= "" then refuse("blocks of Mamba are not in this version") end
  if (row.mtp_layers or "") ~= "" and row.mtp_layers ~= "0" then refuse("prediction of several tokens (MTP) is not in this version") end
  if has(row, "notes", "encoder") then refuse("an encoder beside the decoder is not in this version") end
  local dim, heads, layers, vocab = count(row, "d_model"), count(row, "n_heads"), count(row, "n_layers"), count(row, "vocab")
  local kv_heads, head_dim = count(row, "n_kv_heads", heads), count(row, "head_dim", dim // heads)
  local norm, tied = norm_of(row), flag(row, "untie_embeddings") == false
  local rope = has(row, "position_embedding", "^rope")
  -- Ranks that share sequences cannot train a table of positions here: 1 / 50 of the embedding is left out.
  local learned = has(row, "position_embedding", "^learned") and count(row, "cp", 1) == 1
  -- Llama-like recipes switch biases off (--disable-bias-linear); GPT's have them.
  local bias = not is_gated(row) and has(row, "normalization", "^layer")
  local has_experts = (row.moe_experts or "") ~= "" and mixture_layers(row, layers) or {}
  local function block(i)
    return nn.block { ln_1 = norm(dim), ln_2 = norm(dim),
      attention = nn.attention { dim = dim, heads = heads, kv_heads = kv_heads, head_dim = head_dim, bias = bias,
        rope_theta = rope and 10000.0 or nil },
      mlp = has_experts[i] and mixture(row, dim) or mlp(row, dim, count(row, "d_ff"), bias),
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

-- Which kernels attention is: those that write their scores, where the row names them. Without a word Transformer Engine
-- chooses flash attention; Megatron's own block ("local") writes scores unless flash attention is asked for.
function m.writes_scores(row)
  local backend = (row.attention_backend or ""):lower()
  if backend:find "flash" or backend:find "^fused" or backend:find "cudnn" then return false end
  if backend:find "unfused" or backend:find "local" or has(row, "transformer_impl", "^local") then return true end
  -- Flash attention has a deterministic backward pass since 2.4.1 (April 2024). Transformer Engine with an older one falls back.
  local image = row.framework:match "NGC PyTorch (2%d%.%d%d)"
  return backend == "" and has(row, "env", "nvte_allow_nondeterministic_algo=0") and image ~= nil and image < "24.05"
end

-- The profile's ops, changed as the row says. Bytes a score (Korthikanti et al., arXiv 2205.05198, 4.1): the softmax in two bytes;
-- with dropout a mask and its product beside it. A mask of hidden dropout has a byte an element of each residual sum.
function m.ops(row)
  local ops = {}
  if m.writes_scores(row) then
    ops.attention = { kernels = 8, passes = 1, scores = number(row, "attention_dropout") > 0 and 5 or 2 }
    ops.attention_grad = { kernels = 12, passes = 1 }
  end
  if number(row, "hidden_dropout") > 0 then ops.add = { kernels = 1, passes = 1.7, saved = 1 } end
  ops.layernorm = { kernels = 1, passes = 1 }
  return ops
end

-- Bytes of cuBLAS's workspace that the environment asks for, as in CUBLAS_WORKSPACE_CONFIG=:4096:8, KiB and how often; nil: none.
function m.workspace(row)
  local config, bytes = (row.env or ""):match "CUBLAS_WORKSPACE_CONFIG=([:%d]+)", 0
  for kib, times in (config or ""):gmatch ":(%d+):(%d+)" do bytes = bytes + 1024 * tonumber(kib) * tonumber(times) end
  return bytes > 0 and bytes or nil
end

return m
