-- NeMo Automodel's rules for Mamba-2, and for hybrids of attention and state-space layers
-- (Nemotron-H). They say how cp divides heads, which modules tp splits, and which layers are
-- recomputed.
local dialect = require "tandem.dialect"
local families = require "tandem.families"
local hybrid = {}

-- Returns the numbers of heads and groups of the model's state-space layers, or nil if it has none.
local function sizes_of(model)
  local family = families.of(model)
  local config = family and model.config
  if family == "mamba2" then return config.heads, config.groups end
  if family == "nemotron_h" and config.pattern:find("M", 1, true) then return config.scan_heads, config.groups end
end

-- Checks that cp divides the heads of state-space layers. Each rank of cp gets whole sequences for
-- its share of the heads. If there are fewer groups than ranks, groups are repeated, so that each
-- rank has the B and C of its heads.
function hybrid.check_context(d, s, model)
  local heads, groups = sizes_of(model)
  if not heads or s.cp == 1 then return end
  local function refuse(text, legal)
    d:error("scan-heads", "distributed.cp_size", text, "cp_size may be " .. legal)
  end
  if heads % s.cp ~= 0 then
    return refuse(("num_heads (%d) must be divisible by cp_size (%d)"):format(heads, s.cp), dialect.divisors(heads))
  end
  if groups < s.cp and s.cp % groups ~= 0 then
    return refuse(("cp_size (%d) must be divisible by n_groups (%d) when n_groups < cp_size"):format(s.cp, groups),
      ("a multiple of %d, or one of its divisors"):format(groups))
  end
  if groups >= s.cp and groups % s.cp ~= 0 then
    return refuse(("n_groups (%d) must be divisible by cp_size (%d)"):format(groups, s.cp), dialect.divisors(groups))
  end
  local repeated = groups < s.cp and s.cp // groups or 1
  d:note("scan-heads", "distributed.cp_size", ("each rank of cp scans whole sequences for %d of %d heads, in %d of %d "
    .. "groups; %s"):format(heads // s.cp, heads, groups * repeated // s.cp, groups, repeated == 1 and "no group is repeated"
    or ("%d ranks have each group's B and C"):format(repeated)))
end

local class = "NemotronHForCausalLM"
-- tp splits the MLPs and the head. Attention and state-space layers are whole on every rank.
hybrid.tp_plan = { ["model.layers.*.mixer.up_proj"] = "colwise", ["model.layers.*.mixer.down_proj"] = "rowwise",
  lm_head = "colwise" }
hybrid.family = { class = class, embed = "embed", head = "head", mlp = "mixer", ffn = {}, norms = {},
  mixer = { up_proj = "up", down_proj = "down" } }
hybrid.mamba = { class = "Mamba2ForCausalLM", embed = "embed", head = "head", mlp = "mixer", ffn = {}, norms = {} }

-- Checks the options of tp for Nemotron-H. Automodel ignores a plan in the recipe, and asserts that
-- sequence parallelism is not requested.
function hybrid.check_tensor(d, options, hf)
  if hf.class ~= class then return end
  if options.sequence_parallel then
    d:error("dialect-unsupported", "distributed.sequence_parallel",
      "Sequence parallelism is not supported for NemotronHForCausalLM", "sequence_parallel = false")
  end
  if options.tp_plan ~= nil then
    d:note("dialect-differs", "distributed.tp_plan", "a custom tp_plan is not supported for NemotronHForCausalLM: its own "
      .. "plan is used, as in Automodel")
    options.tp_plan = nil
  end
end

-- Returns the paths of the recomputed layers, which are all layers without attention. Returns nil
-- if the model is not a Nemotron-H.
function hybrid.recomputed(family, model)
  if not family or family.class ~= class then return nil end
  local list, pattern = {}, model.config.pattern
  for i = 1, #pattern do
    if pattern:sub(i, i) ~= "*" then list[#list + 1] = ("layers.%d"):format(i - 1) end
  end
  return list
end

return hybrid
