-- Frameworks that have no profile: what computes their blocks. Rows of them get the profile of a related
-- framework, with a note.
local cells, scores = require "tandem.published.cells", require "tandem.published.frameworks.written_scores"
local count, has = cells.count, cells.has
local m = {}

-- blocks: "XLA" if XLA compiles the model, "PyTorch" if its kernels are PyTorch's
-- old: true if the framework's paper is older than flash attention in PyTorch (March 2023), so attention
--   writes its scores unless the row says otherwise
-- kind: documented; the paper or the repository of each framework
local known = {
  { "alpa", blocks = "XLA", old = true }, { "gspmd", blocks = "XLA", old = true }, { "mesh[%s_%-]*transformer", blocks = "XLA", old = true },
  { "mesh[%s_%-]*tensorflow", blocks = "XLA", old = true }, { "tensorflow", blocks = "XLA", old = true }, { "flax", blocks = "XLA" }, { "haiku", blocks = "XLA" },
  { "bagua", blocks = "PyTorch", old = true }, { "horovod", blocks = "PyTorch", old = true }, { "byteps", blocks = "PyTorch", old = true },
  { "%f[%a]swarm%f[%A]", blocks = "PyTorch", old = true }, { "hivemind", blocks = "PyTorch", old = true }, { "varuna", blocks = "PyTorch", old = true },
  { "pipedream", blocks = "PyTorch", old = true }, { "torchgpipe", blocks = "PyTorch", old = true }, { "patrickstar", blocks = "PyTorch", old = true },
  { "fairseq", blocks = "PyTorch", old = true }, { "zero[%s_%-]*offload", blocks = "PyTorch", old = true }, { "bamboo", blocks = "PyTorch", old = true },
  { "sagemaker", blocks = "PyTorch" }, { "%f[%a]smp%f[%A]", blocks = "PyTorch" }, { "ray%s+train", blocks = "PyTorch" }, { "torchrun", blocks = "PyTorch" },
  { "pytorch", blocks = "PyTorch" }, { "^torch%f[%A]", blocks = "PyTorch" }, { "fsdp", blocks = "PyTorch" }, { "%f[%a]ddp%f[%A]", blocks = "PyTorch" },
}

local function entry_of(row)
  if not cells.is_open(row.names_container) then return nil end -- any framework may run in "PyTorch"
  for _, entry in ipairs(known) do if has(row, "framework", entry[1]) then return entry end end
  return nil
end

-- Returns what the framework's function of run.lua would return. by: the functions of related frameworks,
-- by name.
function m.plan(row, by)
  local entry = entry_of(row) or {}
  local stage, n_pp = cells.stage(row) or 0, count(row, "pp")
  if entry.blocks == "XLA" then
    cells.note("framework %s has no profile; MaxText's is used", row.framework)
    local how = by.maxtext(row)
    return entry.old and scores.of_old_framework(row) and scores.write(row, how, 2) or how
  end
  local shards = stage == 3 or stage == 2 and has(row, "framework", "fsdp")
  if entry.blocks == "PyTorch" or shards and n_pp == 1 then
    cells.note("framework %s is not known; the profile of torchtitan is used", row.framework)
    local how = by.torchtitan(row)
    return entry.old and scores.of_old_framework(row) and scores.write(row, how) or how
  end
  cells.note("framework %s is not known; the profile of Megatron is used", row.framework)
  return by.megatron(row)
end

return m
