-- Schedules of pipelines in published training runs: how a row names one, and the plan's schedule for it.
local cells = require "tandem.published.cells"
local count = cells.count
local m = {}

-- Names of schedules in lower case. In a name, "-" matches any number of blanks, "-" and "_", or
-- none. The first match counts. false: a schedule that no plan can have.
-- kind: documented; Qi et al., arXiv 2401.10241 and 2405.15362; torch.distributed.pipelining.schedules; deepseek-ai/DualPipe
local names = {
  { "dual-pipe-v%f[%A]", "dualpipe_v" }, { "dual-pipe%f[%A]", "dualpipe" },
  { "interleaved-zero-bubble", "zero_bubble" }, { "zb-v-zero-bubble", "zb_v" },
  { "zb-h-1", "zb_h1" }, { "zb-1-p", "zb_h1" }, { "zero-bubble-h-1", "zb_h1" }, { "zb-h-2", "zb_h2" }, { "zb-2-p", "zb_h2" }, { "zero-bubble-h-2", "zb_h2" },
  { "zb-v%f[%A]", "zb_v" }, { "zero-bubble-v%f[%A]", "zb_v" }, { "%f[%a]v-zb%f[%A]", "zb_v" }, { "%f[%a]v-half%f[%A]", "v_half" }, { "%f[%a]v-min%f[%A]", false },
  { "%f[%a]zero-bubble", "zero_bubble" }, { "%f[%a]zb%f[%A]", "zero_bubble" },
  { "looped-bfs", "breadth_first" }, { "breadth-first", "breadth_first" }, { "%f[%a]afab%f[%A]", "gpipe" }, { "%f[%a]g-pipe%f[%A]", "gpipe" },
  { "all-forward-all-backward", "gpipe" }, { "%f[%a]f-then-b%f[%A]", "gpipe" }, { "fill-drain", "gpipe" },
  { "pipedream-flush", "1f1b" }, { "pipedream", false }, { "chimera", false }, { "hanayo", false }, { "terapipe", false }, { "seq-1f1b", false },
  { "%f[%a]bpipe%f[%A]", false }, { "pipe-offload", false },
}
for _, known in ipairs(names) do known[1] = known[1]:gsub("%-", "[%%s_%%-]*") end

-- Returns the schedule that a text in lower case names, and the text without its name. Returns nil
-- if the text names none, or denies it.
local function named(text)
  for _, known in ipairs(names) do
    text = cells.without_denied(text, { known[1] })
    local from, to = text:find(known[1])
    if from and not known[2] then cells.refuse("no plan has the schedule %s", text:sub(from, to)) end
    if from then return known[2], text:sub(1, from - 1) .. text:sub(to + 1) end
  end
  return nil, text
end

-- Returns a text without empty brackets, and without separators at its ends.
local function trimmed(text) return (text:gsub("[%(%[][%s,;+]*[%)%]]", " "):gsub("([%(%[])[%s,;]+", "%1"):gsub("[%s,;]+([%)%]])", "%1"):match "^[%s,;:+_%-]*(.-)[%s,;:+_%-]*$") end

-- Cells that may name a schedule. The cells in `counts` also state a number of stages or chunks.
local counts, words = { "pp", "vp" }, { "pp_schedule", "pipeline_schedule", "framework", "flag" }

-- Replaces DualPipe by two pipelines. DualPipe cuts the model into as many stages as there are
-- ranks, gives each rank two of them, and sends micro-batches through the ranks in both directions
-- at once. Cut in half, it is two pipelines with DualPipeV, each over half of the ranks. Bubble,
-- weights and activations of a device are equal (README of deepseek-ai/DualPipe, "Pipeline Bubbles
-- and Memory Usage Comparison"). The plan then has twice as many data ranks as the row
-- (`directions`).
local function halves(row)
  local n = tonumber(row.pp or "")
  if not n or n == 1 then row.pipeline = nil return end
  if n % 2 ~= 0 then cells.refuse("DualPipe needs an even number of stages: pp = %s", row.pp) end
  row.pp, row.pipeline, row.directions = ("%d"):format(n // 2), "dualpipe_v", 2
end

-- Moves the name of a schedule out of the row's cells, into the field `pipeline` of the row.
function m.read(row)
  row.pipeline = nil
  for _, key in ipairs(counts) do
    local name, rest = named((row[key] or ""):lower())
    if name then
      row.pipeline, row[key] = row.pipeline or name, trimmed(rest)
      if key == "pp" and not row.pp:find "%d" then cells.refuse("the stages of a pipeline are not stated: pp = %s", name) end
    end
  end
  for _, key in ipairs(words) do
    local text = (row[key] or ""):lower()
    local name, rest = named(text)
    row.pipeline = row.pipeline or name
    if not name and key:find "schedule" then
      local looped = cells.affirms(text, "interleav%a*")
      if text ~= "" and not looped and not text:find "1f1b" then cells.refuse("%s is not known: %s", key, row[key]:sub(1, 40)) end
      if looped and cells.is_open(row.vp) and not cells.is_open(row.pp) then row.pp = row.pp .. " (interleaved)" end
    elseif name and key:find "schedule" and rest:find "%d" and cells.is_open(row.pp) then
      row.pp = trimmed(rest)
    end
  end
end

-- Ends the reading of the schedule. Must be called after `read`, as soon as the cell pp is a
-- number.
function m.finish(row) if row.pipeline == "dualpipe" then halves(row) end end

-- Returns the order in which a rank runs the forward passes of its chunks, as a list of { chunk,
-- micro-batch }. `at_once` micro-batches pass through a chunk, then as many through the next chunk.
local function looped_order(n, chunks, at_once)
  local order = {}
  for from = 0, n - 1, at_once do
    for chunk = 0, chunks - 1 do
      for i = from, math.min(from + at_once, n) - 1 do order[#order + 1] = { chunk, i } end
    end
  end
  return order
end

-- Returns a rank's list of actions.
-- order: the order of its forward passes, from `looped_order`
-- warm: the number of forward passes before the first backward pass
-- waits: how many weight gradients may be put off while the rank runs other actions; nil: a
--   backward pass is one action, with its weight gradients
-- backward_first: true if, after the warm-up, each backward pass precedes a forward pass
local function actions(p, rank, order, chunks, warm, waits, backward_first)
  local list, n_weights = {}, 0
  local function add(kind, at, chunk) list[#list + 1] = ("%s%d.%d"):format(kind, chunk * p + rank, at[2]) end
  local function weight()
    n_weights = n_weights + 1
    add("W", order[n_weights], chunks - 1 - order[n_weights][1])
  end
  local function backward(k)
    local at = order[k]
    if not at then return end
    add(waits and "I" or "B", at, chunks - 1 - at[1])
    if waits and k - n_weights > waits then weight() end
  end
  for k = 1, #order + warm do
    if backward_first then backward(k - warm) end
    if order[k] then add("F", order[k], order[k][1]) end
    if not backward_first then backward(k - warm) end
  end
  while waits and n_weights < #order do weight() end
  return list
end

-- Returns Megatron's interleaved schedule in which `at_once` micro-batches pass through a chunk
-- before the next one (--microbatch-group-size-per-virtual-pipeline-stage;
-- pipeline_parallel/schedules.py, get_schedule_table).
function m.interleaved(at_once)
  return function(p, n, chunks)
    local order, ranks = looped_order(n, chunks, at_once), {}
    for rank = 0, p - 1 do
      ranks[rank] = actions(p, rank, order, chunks, math.min(#order, 2 * (p - rank - 1) + (chunks - 1) * at_once))
    end
    return ranks
  end
end

-- The interleaved schedule with separate actions for weight gradients. kind: source;
-- torch.distributed.pipelining.schedules, ScheduleInterleavedZeroBubble
local function interleaved_zero_bubble(p, n, chunks)
  local order, ranks = looped_order(n, chunks, p), {}
  for rank = 0, p - 1 do ranks[rank] = actions(p, rank, order, chunks, math.min(#order, p - rank - 1 + (chunks - 1) * p), rank) end
  return ranks
end

-- ZB-H2: no rank waits between its first and its last action, and a rank keeps up to 2p - 1 activations. kind: documented; Qi et al., 2.2
local function zb_h2(p, n)
  local order, ranks = looped_order(n, 1, n), {}
  for rank = 0, p - 1 do ranks[rank] = actions(p, rank, order, 1, math.min(n, 2 * (p - rank) - 1), 2 * rank, true) end
  return ranks
end

-- All micro-batches pass through a chunk before the next chunk begins. kind: source; torch.distributed.pipelining.schedules, ScheduleLoopedBFS
local function breadth_first(p, n, chunks)
  local ranks = {}
  for rank = 0, p - 1 do
    local list = {}
    for chunk = 0, chunks - 1 do
      for i = 0, n - 1 do list[#list + 1] = ("F%d.%d"):format(chunk * p + rank, i) end
    end
    for chunk = chunks - 1, 0, -1 do
      for i = n - 1, 0, -1 do list[#list + 1] = ("B%d.%d"):format(chunk * p + rank, i) end
    end
    ranks[rank] = list
  end
  return ranks
end

-- The plan's schedules by name. Each has the schedule and:
-- chunks: the only number of chunks that a rank can have; nil: any number
-- looped: the schedule that is used instead if a rank has several chunks
-- usual: the number of chunks if the row gives none
local plans = {
  ["1f1b"] = { "1f1b" }, gpipe = { "gpipe", looped = breadth_first }, breadth_first = { breadth_first, usual = 2 },
  zb_h1 = { "zb_h1", chunks = 1 }, zb_h2 = { zb_h2, chunks = 1 }, zero_bubble = { "zb_h1", looped = interleaved_zero_bubble },
  zb_v = { "zb_v", chunks = 2 }, v_half = { "v_half", chunks = 2 }, dualpipe_v = { "dualpipe_v", chunks = 2 },
}

-- Returns the plan's schedule that the row names, and the number of chunks of a rank. Returns nil
-- if the row names no schedule, or 1F1B.
function m.of(row)
  local known, vp = plans[row.pipeline or "1f1b"], count(row, "vp", 1)
  if known[1] == "1f1b" then return nil end
  if known.chunks and vp > 1 and vp ~= known.chunks then cells.refuse("the schedule %s has %d chunks, but vp = %s", row.pipeline, known.chunks, row.vp) end
  local chunks = known.chunks or cells.is_open(row.vp) and known.usual or vp
  return chunks > 1 and known.looped or known[1], chunks
end

return m
