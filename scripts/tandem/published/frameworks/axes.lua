-- The ranks of a published run and the axes of its mesh.
local cells, megatrons = require "tandem.published.cells", require "tandem.published.megatron"
local refuse, count, sharers = cells.refuse, cells.count, require("tandem.published.passes").sharers
local m = {}

-- Returns the number of ranks with different samples.
function m.ranks(row)
  local n, n_tp, n_pp, n_cp = count(row, "n_gpus"), count(row, "tp"), count(row, "pp"), sharers(row)
  if n % (n_tp * n_pp * n_cp) ~= 0 then
    refuse("%d GPUs do not divide over tp %d x pp %d%s", n, n_tp, n_pp, n_cp > 1 and (" x cp %d"):format(n_cp) or "")
  end
  return n // (n_tp * n_pp * n_cp)
end

-- Returns the plan's mesh. sharded: true if the data ranks (ranks with different samples) shard
-- weights or states. Then they form the axis dp_shard, or two axes if the row gives both dp_shard
-- and dp_replicate. Otherwise they form the axis dp_replicate.
function m.mesh(row, sharded)
  local own = m.ranks(row)
  local ep = megatrons.common_divisor(own, count(row, "ep", 1))
  if ep ~= count(row, "ep", 1) then
    cells.note("the ranks of ep = %d extend over tp or cp; they are planned as %d ranks with different samples", count(row, "ep"), ep)
    row.ep = tostring(ep)
  end
  local data = own // ep
  local shard, copies = tonumber(row.dp_shard), tonumber(row.dp_replicate)
  if not shard and copies and copies > 1 and copies < data and data % copies == 0 and cells.stage(row) == 3 then shard = data // copies end
  local replicate = tonumber(row.dp_replicate) or shard and shard > 1 and data % shard == 0 and data // shard
  local axes = { pp = count(row, "pp"), tp = count(row, "tp"), cp = sharers(row), ep = ep > 1 and ep or nil }
  if not sharded then
    axes.dp_replicate = data
  elseif shard and replicate and shard * replicate == data then
    axes.dp_shard, axes.dp_replicate = math.tointeger(shard), math.tointeger(replicate)
  else
    axes.dp_shard = data
  end
  return axes
end

return m
