-- The layers of a hybrid model, as Megatron writes them
-- (core/models/hybrid/hybrid_layer_allocation.py). The letters are: M Mamba, G gated delta net, *
-- attention, D sparse attention, + latent attention, - MLP, E experts. "|" separates the parts of a
-- pipeline. After each "/" follow the layers of a head that predicts a further token. All heads
-- have the same layers.
local cells = require "tandem.published.cells"
local m = {}

-- Returns the letters of the layers, the number of layers in each part of the pipeline (nil: the
-- pattern has one part), the letters of a head, and the number of heads. Returns nil if the row has
-- no pattern.
function m.read(row)
  if cells.is_open(row.hybrid_pattern) then return nil end
  local text = row.hybrid_pattern:gsub("%s", "")
  if text:find "[^MG*D+%-E|/]" then cells.refuse("hybrid_pattern is not known: %s", row.hybrid_pattern:sub(1, 60)) end
  local parts, first, further, heads = {}, text:match "^[^/]*", nil, 0
  for part in (first .. "|"):gmatch "([^|]*)|" do parts[#parts + 1] = #part end
  for head in text:sub(#first + 1):gmatch "/([^/]*)" do
    if further and head ~= further then cells.refuse("hybrid_pattern has heads with different layers: %s", row.hybrid_pattern:sub(1, 60)) end
    further, heads = head, heads + 1
  end
  return first:gsub("|", ""), #parts > 1 and parts or nil, further, heads
end

-- Returns the number of blocks that the heads for further tokens add to the model.
function m.further_blocks(row)
  local heads = cells.count(row, "mtp_layers", 0)
  local _, _, further = m.read(row)
  return heads * (further and further ~= "" and #further or 1)
end

-- Fills the cells that the pattern implies: the number of layers, the chunks of each rank, the
-- heads. Megatron, too, takes the number of layers from the pattern.
function m.fill(row)
  if cells.has(row, "hybrid_pattern", "^%s*no") then row.hybrid_pattern = "" end -- "none", "no"
  local letters, parts, _, heads = m.read(row)
  if not letters then return end
  row.n_layers = tostring(#letters)
  if cells.is_open(row.mtp_layers) and heads > 0 then row.mtp_layers = tostring(heads) end
  local n_pp = cells.count(row, "pp", 1)
  if parts and #parts % n_pp == 0 and (cells.is_open(row.vp) or cells.count(row, "vp", 1) == 1) then row.vp = tostring(#parts // n_pp) end
end

return m
