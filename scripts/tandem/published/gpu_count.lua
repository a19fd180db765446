-- Computes the number of GPUs of a Megatron run from its memory, if the row does not state the
-- number. The row may state the memory that the run occupies between steps (mem_allocated_gib):
-- weights, gradients, and the part of the optimizer's states that a rank keeps. This part depends
-- on the number of ranks that share the states.
local cells, catalog = require "tandem.published.cells", require "tandem.published.catalog"
local blocks, megatrons = require "tandem.published.blocks", require "tandem.published.megatron"
local count = cells.count
local m = {}

-- Returns the numbers of layers without and with experts on the last stage. Heads that predict
-- further tokens are not counted.
local function layers_of(row)
  local layers, n_pp = count(row, "n_layers"), count(row, "pp", 1)
  local mixes = not cells.is_open(row.moe_experts) and blocks.mixture_layers(row, layers) or {}
  local split, at, dense, mixed = megatrons.split(row), 0, 0, 0
  for part = 1, split and #split or n_pp * count(row, "vp", 1) do
    local size = split and split[part] or layers // (n_pp * count(row, "vp", 1))
    for i = at + 1, math.min(at + size, part % n_pp == 0 and layers or 0) do
      if mixes[i] then mixed = mixed + 1 else dense = dense + 1 end
    end
    at = at + size
  end
  return dense, mixed
end

-- Returns two numbers of parameters of the last stage on one rank: the parameters of which every
-- data rank has a copy, and the parameters of experts. Also returns the number of ranks over which
-- experts are divided. Norms and biases are not counted.
local function parameters(row)
  local dim, heads, n_tp = count(row, "d_model"), count(row, "n_heads"), count(row, "tp", 1)
  local dense, mixed = layers_of(row)
  local further = count(row, "mtp_layers", 0)
  if mixed > 0 then mixed = mixed + further else dense = dense + further end
  local attention = catalog.attention { d = dim, h = heads, kv = count(row, "n_kv_heads"), hd = count(row, "head_dim", dim // heads),
    mla = not cells.is_open(row.mla) and row.mla or nil }
  local matrices = dim * (cells.has(row, "activation", "glu") and 3 or 2)
  local ends = (count(row, "pp", 1) == 1 or further > 0) and cells.flag(row, "untie_embeddings") ~= false and 2 or 1
  local shared = (dense + mixed) * attention + matrices * (dense * count(row, "d_ff") + mixed * count(row, "moe_shared_ffn", 0)) +
    ends * count(row, "vocab", 50257) * dim
  local cut = count(row, "ep", 1) * count(row, "etp", n_tp)
  local experts = mixed > 0 and mixed * matrices * count(row, "moe_ffn", count(row, "d_ff")) * count(row, "moe_experts") or 0
  return shared / n_tp, experts / cut, cut
end

-- Returns the number of GPUs at which the memory of a rank is closest to the stated memory: `need`
-- times a power of two, and at most `most`. Returns nil if the row does not state the memory, or if
-- the memory does not depend on the number. Weights have 16 bits; gradients and the three states
-- have 32.
function m.of_memory(row, need, most)
  local stated = tonumber(row.mem_allocated_gib or "")
  if not stated or (cells.stage(row) or 0) == 0 or not cells.has(row, "framework", "^megatron") or not cells.is_open(row.hybrid_pattern) then return nil end
  local shared, experts, cut = parameters(row)
  local n_tp, n_pp, best, least = count(row, "tp", 1), count(row, "pp", 1), nil, math.huge
  local n = need
  while n <= math.max(need, most) do
    local bytes = shared * (6 + 12 * n_tp * n_pp / n) + experts * (6 + 12 * cut * n_pp / n)
    local error = math.abs(math.log(bytes / (stated * 2 ^ 30)))
    if error < least then best, least = n, error end
    n = 2 * n
  end
  return best
end

return m
