-- The parts of a block in published training runs: activation, norm, positions, tied embedding. The
-- family of a model gives its parts. A row may state other ones.
local cells = require "tandem.published.cells"
local m = {}

-- The parts of the blocks of families, in the words of Megatron's columns. The first match counts.
-- A model whose name gives no family is planned like Llama.
local llama_like = { activation = "swiglu", normalization = "RMSNorm", position_embedding = "rope", untie_embeddings = "1" }
local gpt_like = { activation = "gelu", normalization = "LayerNorm", position_embedding = "learned_absolute", untie_embeddings = "0" }
local families = {
  { "santacoder", { activation = "gelu", normalization = "LayerNorm", position_embedding = "learned_absolute", untie_embeddings = "0" } },
  { "starcoder2", { activation = "gelu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "0" } },
  { "gemma", { activation = "geglu", normalization = "RMSNorm", position_embedding = "rope", untie_embeddings = "0" } },
  { "falcon%-?3", llama_like },
  { "falcon", { activation = "gelu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "0" } },
  { "pythia", { activation = "gelu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "1" } },
  { "phi%-?[12]%f[%D]", { activation = "gelu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "1" } },
  { "redpajama", { activation = "gelu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "1" } },
  { "neox", { activation = "gelu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "1" } },
  { "gpt%-?j", { activation = "gelu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "1" } },
  -- BLOOM adds slopes to attention's scores instead of positions; they have no weights.
  { "bloom", { activation = "gelu", normalization = "LayerNorm", position_embedding = "none", untie_embeddings = "0" } },
  { "bert", { activation = "gelu", normalization = "LayerNorm", position_embedding = "learned_absolute", untie_embeddings = "0" } },
  { "minitron", { activation = "squared-relu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "1" } },
  { "^nemotron", { activation = "squared-relu", normalization = "LayerNorm", position_embedding = "rope", untie_embeddings = "1" } },
  { "^t5", { activation = "gelu", normalization = "LayerNorm", position_embedding = "learned_absolute", untie_embeddings = "0" } },
  { "^gpt%-?3", { activation = "gelu", normalization = "LayerNorm", position_embedding = "learned_absolute", untie_embeddings = "0" } },
  -- The library's own models of these families have these parts.
  { "^gpt%-?oss", llama_like }, { "^gpt", gpt_like }, { "^mpt", gpt_like }, { "^megatron", gpt_like }, { "^turing", gpt_like }, { "^opt", gpt_like },
}

-- Words for each part, and what they mean.
local words = {
  activation = { { "^swiglu", "swiglu" }, { "^silu", "silu" }, { "^geglu", "geglu" }, { "^gelu", "gelu" }, { "relu", "relu" } },
  normalization = { { "^layer", "layer" }, { "^rms", "rms" } },
  position_embedding = { { "^ro[pt]", "rope" }, { "^learned", "learned" }, { "^absolute", "learned" }, { "^no", "none" }, { "alibi", "none" }, { "^relative", "none" }, { "^sinus", "none" } },
}

-- Returns the part that a cell names, or nil if the cell is empty. Refuses unknown words.
local function part_of(row, key)
  if key == "untie_embeddings" then return cells.flag(row, key) end
  if cells.is_open(row[key]) then return nil end
  for _, known in ipairs(words[key]) do if cells.has(row, key, known[1]) then return known[2] end end
  cells.refuse("%s is not known: %s", key, row[key]:sub(1, 60))
end

-- Returns the parts of the family that the row's model belongs to, or nil if its name gives none.
function m.of(row)
  for _, known in ipairs(families) do if cells.has(row, "model", known[1]) then return known[2] end end
  return nil
end

-- Fills the cells of parts that the row does not state.
function m.fill(row)
  for key, value in pairs(m.of(row) or llama_like) do
    if cells.is_open(row[key]) then row[key] = value end
  end
end

-- Returns the first cell that states another part than the row's family has, or nil if there is none.
function m.other(row)
  local own = m.of(row) or llama_like
  for _, key in ipairs { "activation", "normalization", "position_embedding", "untie_embeddings" } do
    local stated = part_of(row, key)
    if stated ~= nil and stated ~= part_of(own, key) then return key end
  end
  return nil
end

return m
