-- The head and the loss of Megatron's published runs: their options change the profile.
local cells, megatrons = require "tandem.published.cells", require "tandem.published.megatron"
local recipes = require "tandem.published.recipes"
local count, has, flag = cells.count, cells.has, cells.flag
local m = {}

-- Returns a copy of the table in which these entries are changed.
local function with(from, changes)
  local own = {}
  for key, value in pairs(from) do own[key] = value end
  for key, value in pairs(changes) do own[key] = value end
  return own
end

-- Returns true if a second fp32 copy of the logits exists during the loss. Until June 2024
-- (Megatron-Core 0.7), the loss subtracted in a copy of its own, while its caller still had the
-- first copy (core/tensor_parallel/cross_entropy.py).
local function copies_logits(row)
  local major, minor = row.framework:lower():match "core[%s_v%-]*(%d+)%.(%d+)"
  return major ~= nil and tonumber(major) == 0 and tonumber(minor) < 8
end

-- With --defer-embedding-wgrad-compute, the last stage computes the weight gradients of the head at
-- the end of a step. Returns the bytes that it keeps until then: inputs and gradients of the head,
-- of at most --wgrad-deferral-limit micro-batches. Returns nil without the option. stated: the
-- limit that the row's source states. Without a limit, all micro-batches are deferred.
-- kind: source; core/tensor_parallel/layers.py: LinearWithGradAccumulationAndAsyncCommunication
local function deferred(row, n_micro, stated)
  if not has(row, "notes", "defer%-embedding%-wgrad") or count(row, "pp") == 1 then return nil end
  local limit = tonumber((row.notes or ""):match "wgrad%-deferral%-limit=(%d+)") or stated or 0
  local tokens = count(row, "micro_batch") * megatrons.tokens(row) // count(row, "cp", 1)
  return math.min(n_micro, limit > 0 and limit or n_micro) * tokens * 2 * (count(row, "vocab") // count(row, "tp") + count(row, "d_model"))
end

-- Returns the bytes of the heads that predict further tokens
-- (transformer/multi_token_prediction.py), without their blocks, or nil if there are none. Each
-- loss keeps its fp32 softmax for the backward pass. In a pipeline, the last stage also has the
-- embedding, its gradient in fp32, and the 12 bytes of Adam's states for each parameter.
local function further(row, data)
  local n = count(row, "mtp_layers", 0)
  if n == 0 then return nil end
  local tokens, cut = count(row, "micro_batch") * megatrons.tokens(row) // count(row, "cp", 1), count(row, "vocab") // count(row, "tp")
  local states = 2 + 4 + 12 / ((cells.stage(row) or 0) > 0 and data or 1)
  return n * 4 * tokens * cut + (count(row, "pp") > 1 and math.floor(states * cut * count(row, "d_model")) or 0)
end

-- Changes the profile's ops of the head and the loss as the row says. A fused loss
-- (--cross-entropy-loss-fusion) is compiled (core/fusions/fused_cross_entropy.py: jit_fuser), and
-- its gradient is a new fp32 tensor. Without fusion, the gradient is computed in place. Transformer
-- Engine's fused loss computes in the memory of the 16-bit logits (pytorch/cross_entropy.py).
function m.changes(row, own, how, stated_limit)
  local data = math.max(1, count(row, "n_gpus") // (count(row, "tp") * count(row, "pp")))
  local held = (deferred(row, how.n_micro, stated_limit) or 0) + (further(row, data) or 0)
  -- These bytes are on the last stage, but a profile has one number of bytes for all ranks. So they
  -- count only if the log prints the memory of the last stage. Otherwise a rank of the first stage
  -- is assumed to need the most.
  -- kind: assumed; with 1F1B, the first stage holds the activations of most micro-batches
  if held > 0 and count(row, "pp") > 1 and own.reports_rank ~= "last" then
    cells.note("a rank of the first stage is assumed to need most; %.1f GB for the head of the last stage do not count", held / 1e9)
    held = 0
  end
  if held > 0 then own.library_bytes = (own.library_bytes or 0) + held end
  if copies_logits(row) then own.ops = with(own.ops, { xent_max = with(own.ops.xent_max, { scratch = 4 }) }) end
  local fusion = cells.is_open(row.cross_entropy_fusion) and recipes.loss(row) or row.cross_entropy_fusion
  if flag({ fusion = fusion }, "fusion") ~= true then return end
  if cells.affirms(fusion, "%f[%a]te%f[%A]") then
    own.ops = with(own.ops, { xent_max = { kernels = 1, passes = 1 }, xent_sumexp_grad = { kernels = 1, passes = 1, in_place = "backward" } })
  else
    own.ops = with(own.ops, { xent_sumexp_grad = { kernels = 2, passes = 5, scratch = 4, in_place = "backward" } })
  end
end

return m
