-- Experts in NeMo Automodel (ep_size > 1). Automodel makes ep the innermost axis of the ranks of a
-- pipeline stage. It shards each expert over ep_shard = dp x cp x tp / ep ranks. The section
-- distributed.moe has the options of experts.
local dialect = require "tandem.dialect"
local values = require "tandem.dialect_values"
local experts = {}

local keys = { ignore_router_for_ac = { "boolean", true }, activation_checkpointing_modules = { "list" },
  reshard_after_forward = { "boolean", false }, lm_head_precision = { "any" }, wrap_outer_model = { "boolean", true },
  mp_policy = { "any" } }

local function config_of(model)
  local config = type(model) == "table" and rawget(model, "config")
  return type(config) == "table" and config or {}
end

-- Returns the number of experts of the library's model, or nil if it has none or the model is the
-- user's own.
function experts.count(model)
  local n = config_of(model).experts
  return math.type(n) == "integer" and n or nil
end

-- Returns the width of an MLP and the number of experts of the library's model; nil for a number
-- that the model does not state.
function experts.sizes_of_model(model)
  local hidden = config_of(model).hidden
  return math.type(hidden) == "integer" and hidden or nil, experts.count(model)
end

-- Returns a hint with the sizes of ep that divide both the ranks of a stage and the number of
-- experts.
function experts.sizes(d, s)
  return "ep_size may be " .. dialect.divisors(dialect.common(s.dp * s.cp * s.tp, experts.count(d.config.model)), 64)
end

-- Checks that the model has experts, and that ep divides their number. For a user's own model, ep{}
-- makes these checks.
local function check_model(d, s, family, n)
  if n and n % s.ep ~= 0 then
    d:error("divides-experts", "distributed.ep_size", ("n_routed_experts %d must be divisible by expert_parallel_degree "
      .. "%d"):format(n, s.ep), experts.sizes(d, s))
  elseif family and not n then
    d:error("ep-without-experts", "distributed.ep_size", ("ep_size = %d with %s, which has no experts"):format(s.ep,
      family.class), "ep_size = 1, or for example models.qwen \"3-30b-a3b\"")
  end
end

-- Notes where Tandem places experts differently than Automodel.
local function check_fold(d, s)
  local same = s.dp * s.cp * s.tp // s.ep
  if s.tp > s.ep then
    d:note("dialect-differs", "distributed.ep_size", ("%d tp ranks hold the same whole experts and repeat their "
      .. "computation; Automodel shards these experts over %d ranks"):format(s.tp // s.ep, same))
  end
  if s.replicate > 1 and same > 1 then
    d:note("dialect-differs", "distributed.dp_replicate_size", ("experts are sharded over the %d ranks of each "
      .. "replica that hold the same experts; Automodel shards them over the %d of all replicas"):format(
      math.max(same // s.replicate, 1), same))
  end
end

-- Checks the list of recomputed modules: it may name only attention.
local function check_modules(d, list)
  local at = "distributed.moe.activation_checkpointing_modules"
  if list and #list == 0 then
    d:error("out-of-range", at, "activation_checkpointing_modules must not be empty when specified", "{ \"attn\" }")
  end
  for _, name in ipairs(list or {}) do
    if name ~= "attn" then
      d:error("unknown-word", at, ("activation_checkpointing_modules currently supports only 'attn'; got '%s'"):format(
        tostring(name)), "{ \"attn\" }")
    end
  end
end

local function options_of(d, given)
  local options = values.section(d, "distributed.moe", given.moe or {}, keys)
  check_modules(d, options.activation_checkpointing_modules)
  local precision = values.dtype(d, "distributed.moe.lm_head_precision", options.lm_head_precision)
  if precision == "fp32" then
    d:error("dialect-unsupported", "distributed.moe.lm_head_precision",
      "lm_head_precision = float32 is not supported: the head has the precision of the other ops", "leave it out")
  end
  if options.mp_policy ~= nil then
    d:error("dialect-unsupported", "distributed.moe.mp_policy", "mp_policy of experts is not supported: all units "
      .. "have one policy",
      "distributed.mp_policy")
  end
  if given.reshard_after_forward ~= nil then
    d:warn("not-applied", "distributed.reshard_after_forward", ("with ep_size > 1, distributed.moe decides on resharding: "
      .. "reshard_after_forward = %s"):format(options.reshard_after_forward))
  end
  return options
end

-- Notes a capacity factor. Automodel drops no token, and sends and computes only the rows that hold
-- a token.
local function check_capacity(d, factor)
  if factor == "dropless" then return end
  local text = factor == "all" and "with capacity_factor = all each expert has room for every token, so a step takes more "
    .. "memory and time than in Automodel" or ("Automodel drops no token; with capacity_factor = %s the model drops "
    .. "tokens above an expert's capacity"):format(tostring(factor))
  d:note("dialect-differs", "model", text, "capacity_factor = \"dropless\" in the model")
end

-- Returns the options for models with experts, or nil if ep_size is 1. options: the options of the
-- strategy.
function experts.options(d, s, given, options, family)
  local n = experts.count(d.config.model)
  for _, key in ipairs { "sequence_parallel", "enable_async_tensor_parallel" } do
    if options[key] and (s.ep > 1 or (n and s.tp > 1)) then
      d:error("sequence-with-experts", "distributed." .. key, ("%s is not supported for models of experts"):format(key),
        "leave it out")
    end
  end
  if n then check_capacity(d, config_of(d.config.model).capacity_factor) end
  if s.ep <= 1 then return nil end
  check_model(d, s, family, n)
  if d.n_errors == 0 then check_fold(d, s) end
  return options_of(d, given)
end

-- Returns ac{} for models of experts: it recomputes whole blocks, or only their attention.
function experts.checkpointing(d, options)
  if options.activation_checkpointing_modules then return ac "selective" end
  if options.ignore_router_for_ac then
    d:note("dialect-differs", "distributed.activation_checkpointing", "Automodel keeps what the router computed; "
      .. "Tandem computes it again, with the same choices: ties are broken by index")
  end
  return ac "full"
end

return experts
