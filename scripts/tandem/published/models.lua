-- The model of a row of published training runs. The model's name gives its family, and the family
-- gives the parts of its blocks. If the row has Megatron's own columns, these columns give the
-- parts.
local cells, megatrons, catalog = require "tandem.published.cells", require "tandem.published.megatron", require "tandem.published.catalog"
local parts = require "tandem.published.read.parts"
local refuse, count, has = cells.refuse, cells.count, cells.has

local function llama(row)
  return require "models.llama" { size = "3.1-8b", layers = count(row, "n_layers"), dim = count(row, "d_model"),
    heads = count(row, "n_heads"), kv_heads = count(row, "n_kv_heads"), hidden = count(row, "d_ff"),
    vocab = count(row, "vocab") }
end
local function qwen3(row)
  return require "models.qwen" { size = "3-8b", layers = count(row, "n_layers"), dim = count(row, "d_model"),
    heads = count(row, "n_heads"), kv_heads = count(row, "n_kv_heads"), hidden = count(row, "d_ff"),
    vocab = count(row, "vocab") }
end
-- Makes GPT, with learned positions and biases. MPT is planned in the same way, but without biases.
local function gpt(row, how)
  local vocab = how.vocab or count(row, "vocab")
  return require "models.gpt2" { size = "124m", layers = count(row, "n_layers"), dim = count(row, "d_model"),
    heads = count(row, "n_heads"), hidden = count(row, "d_ff"), positions = count(row, "seq"),
    vocab = (vocab + 127) // 128 * 128, bias = how.bias }
end

-- Nemotron-4: layer norms, RoPE on half of each head, an MLP without a gate, an untied head. Its
-- squared ReLU is planned as GELU, which reads and writes as many bytes. So such a plan predicts
-- only time and memory.
local function nemotron(row)
  local nn = require "tandem.nn"
  local dim, heads, hidden = count(row, "d_model"), count(row, "n_heads"), count(row, "d_ff")
  local vocab, layers = count(row, "vocab"), count(row, "n_layers")
  local function block()
    return nn.block {
      attention_norm = nn.layernorm(dim), mlp_norm = nn.layernorm(dim),
      attention = nn.attention { dim = dim, heads = heads, kv_heads = count(row, "n_kv_heads"), rope_theta = 10000.0,
        rope_dims = dim // heads // 2 },
      up = nn.linear(dim, hidden), down = nn.linear(hidden, dim),
      tp_col = { "attention.wq", "attention.wk", "attention.wv", "up" }, tp_row = { "attention.wo", "down" },
      forward = function(m, x)
        local h = x + m.attention(m.attention_norm(x))
        return h + m.down(nn.gelu(m.up(m.mlp_norm(h))))
      end,
    }
  end
  return nn.module {
    embed = nn.embedding(vocab, dim), layers = nn.list(layers, block), norm = nn.layernorm(dim),
    head = nn.linear(dim, vocab), tp_vocab = { "embed", "head" },
    forward = function(m, tokens, labels)
      return nn.cross_entropy(m.head(m.norm(m.layers(m.embed(tokens)))), labels)
    end,
  }
end

-- Models that have layers whose attention sees only a window of tokens.
local windowed = { "gpt%-?oss", "gemma[%s_-]?[23][%s_-]", "llama[%s_-]?4[%s_-]" }
local is_family
local function stated_blocks(row, how)
  if not parts.of(row) and not is_family(row) and not catalog.find(row.model) and not megatrons.states_blocks(row) then
    cells.note("no family of the name %s is known; a decoder like Llama is planned", row.model)
  end
  for _, name in ipairs(windowed) do
    if has(row, "model", name) then cells.note("windows and sinks of attention are left out: %s", row.model) end
  end
  parts.fill(row)
  return megatrons.model(row, how.is_megatron and megatrons.cuts_experts(row, how.ep))
end

local families = {
  { "^llama", llama }, { "^yi", llama }, { "^mistral", llama }, { "^powerlm", llama }, { "^granite", llama }, { "^codellama", llama },
  { "^smollm", llama }, { "^internlm", llama }, { "^vicuna", llama }, { "^qwen3", qwen3 }, { "^tinyllama", llama },
  { "^nemotron%-%d", nemotron },
  { "^mpt", function(row) return gpt(row, { bias = false }) end },
  { "^gpt%-oss", stated_blocks }, { "^gpt", gpt }, { "^megatron", gpt }, { "^turing", gpt }, { "^opt", gpt },
}

function is_family(row)
  for _, family in ipairs(families) do
    if has(row, "model", family[1]) then return true end
  end
  return false
end

-- Returns true if the function for the row's family cannot make the row's model.
local function is_special(row)
  local dim, heads = count(row, "d_model"), count(row, "n_heads")
  return not cells.is_open(row.moe_experts) or not cells.is_open(row.mla) or not cells.is_open(row.hybrid_pattern) or
    count(row, "mtp_layers", 0) > 0 or count(row, "head_dim", dim // heads) ~= dim // heads or has(row, "model", "santacoder")
end

-- Families that cannot be planned as a decoder of attention and MLPs: rows of them are refused.
local others = { "rwkv", "mamba", "jamba", "hyena", "retnet", "diffusion", "^vit", "resnet", "whisper", "dlrm", "^flux" }

-- Words in a model's name which say that the row is not the training of one language model, and the
-- reason for refusing the row.
local elsewhere = { { "%f[%a]inference%f[%A]", "inference is not planned" }, { "%f[%a]grpo%f[%A]", "reinforcement learning is not planned" },
  { "%f[%a]ppo%f[%A]", "reinforcement learning is not planned" }, { "llava", "the sizes of the vision encoder are not stated" },
  { "%f[%a]vlm%f[%A]", "the sizes of the vision encoder are not stated" }, { "multimodal", "the sizes of the vision encoder are not stated" } }

return function(row, how)
  local states = not cells.is_open(row.hybrid_pattern) -- the pattern names the layers of any hybrid
  for _, other in ipairs(states and {} or others) do
    if has(row, "model", other) then refuse("no model of this family: %s", row.model) end
  end
  for _, known in ipairs(elsewhere) do
    if has(row, "model", known[1]) then refuse("%s: %s", known[2], row.model) end
  end
  if has(row, "model", "distill") and has(row, "notes", "kd%-") then cells.note("the teacher of the distillation is left out: %s", row.model) end
  if has(row, "model", "^t5") then return stated_blocks(row, how) end
  -- "attention-variant" means gated delta nets or DeepSeek's sparse attention (--experimental-attention-variant)
  if has(row, "notes", "attention%-variant") or has(row, "notes", "linear%-attention") then
    cells.note("the variant of attention in these notes is planned as plain attention: %s", row.notes)
  end
  local other = parts.other(row) -- its words are read even if the next line does not need them
  if how.is_megatron and megatrons.states_blocks(row) or is_special(row) or other then return stated_blocks(row, how) end
  for _, family in ipairs(families) do
    if has(row, "model", family[1]) then return family[2](row, how) end
  end
  return stated_blocks(row, how)
end
