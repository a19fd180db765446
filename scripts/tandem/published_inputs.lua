-- Runs whose steps wait for their data: the time in which their loader reads a sequence.
local cells = require "tandem.published_cells"

local m = {}

-- Steps of Megatron-LM's tests on a single tray of GB200 depend on the sequences of a data rank alone, with 4 or
-- 12 layers, and with one stage or four. The same tests on two trays do not. It holds for that machine alone.
-- kind: fitted; median of 14 dev-cal runs on one tray of GB200 (0.050 to 0.13); that of 14 dev-val runs is 0.059
m.tray_input_s = 0.058

function m.of(row)
  local is_theirs = cells.has(row, "source", "^megatron%-lm functional tests")
  local is_tray = cells.has(row, "platform", "dgx_gb200") and tonumber(row.n_gpus) == 4
  return is_theirs and is_tray and m.tray_input_s or nil
end

return m
