-- Runs whose steps wait for their data. The loader needs a time for each sequence.
local cells = require "tandem.published_cells"

local m = {}

-- On a single tray of GB200, the steps of Megatron-LM's tests depend only on the sequences of a data
-- rank. They do not depend on the number of layers (4 or 12) or stages (one or four). On two trays they
-- do. This time holds for that machine alone.
-- kind: fitted; median of 14 dev-cal runs on one tray of GB200 (0.050 to 0.13); that of 14 dev-val runs is 0.059
m.tray_input_s = 0.058

function m.of(row)
  local is_theirs = cells.has(row, "source", "^megatron%-lm functional tests")
  local is_tray = cells.has(row, "platform", "dgx_gb200") and tonumber(row.n_gpus) == 4
  return is_theirs and is_tray and m.tray_input_s or nil
end

return m
