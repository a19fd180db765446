-- Turns the options of NeMo Automodel's strategies into passes, precision and optimizer, with
-- Automodel's defaults.
local dialect = require "tandem.dialect"
local values = require "tandem.dialect_values"
local tensor = require "dialects.automodel_tp"
local hybrid = require "dialects.automodel_hybrid"
local experts = require "dialects.automodel_experts"
local options_of = {}

local fsdp2_keys = {
  sequence_parallel = { "boolean", false }, tp_plan = { "any" }, patch_is_packed_sequence = { "boolean", false },
  mp_policy = { "any" }, offload_policy = { "any" }, autocast_dtype = { "any" },
  activation_checkpointing_scope = { "any" }, defer_fsdp_grad_sync = { "boolean", true },
  reshard_after_forward = { "boolean" }, enable_async_tensor_parallel = { "boolean", false },
  enable_compile = { "boolean", false }, enable_fsdp2_prefetch = { "boolean", false },
  fsdp2_backward_prefetch_depth = { "integer", 2 }, fsdp2_forward_prefetch_depth = { "integer", 1 },
}
local megatron_keys = {
  megatron_fsdp_unit_modules = { "list" }, zero_dp_strategy = { "any" },
  data_parallel_sharding_strategy = { "any" }, init_fsdp_with_meta_device = { "boolean", false },
  grad_reduce_in_fp32 = { "boolean", false }, preserve_fp32_weights = { "boolean", false },
  overlap_grad_reduce = { "boolean", true }, overlap_param_gather = { "boolean", true },
  check_for_nan_in_grad = { "boolean", true }, report_nan_in_param_grad = { "boolean", false },
  average_in_collective = { "boolean", false }, disable_bucketing = { "boolean", false },
  calculate_per_token_loss = { "boolean", false }, keep_fp8_transpose_cache = { "boolean", false },
  nccl_ub = { "boolean", false }, fsdp_double_buffer = { "boolean", false },
}
local ddp_keys = {
  activation_checkpointing_scope = { "any" }, broadcast_buffers = { "boolean", false },
  find_unused_parameters = { "boolean", false }, static_graph = { "boolean", false },
  bucket_cap_mb = { "number", 25 }, gradient_as_bucket_view = { "boolean", false }, autocast_dtype = { "any" },
}
local keys_of = { fsdp2 = fsdp2_keys, megatron_fsdp = megatron_keys, ddp = ddp_keys }
local names = { fsdp2 = "fsdp2", ddp = "ddp", megatron_fsdp = "megatron_fsdp", ["megatron-fsdp"] = "megatron_fsdp",
  mfsdp = "megatron_fsdp" }
-- Keys of `distributed` that are not options of a strategy.
local common = { strategy = true, dp_size = true, dp_replicate_size = true, tp_size = true, cp_size = true,
  pp_size = true, ep_size = true, pipeline = true, moe = true, activation_checkpointing = true,
  cp_ring_size = true, cp_ulysses_size = true, cp_ring_degree = true, cp_ulysses_degree = true }

-- Returns the name of the strategy, and its options with their defaults.
function options_of.strategy(d, given)
  if d.config.distributed ~= nil and type(d.config.distributed) ~= "table" then
    d:error("wrong-type", "distributed", "distributed must be a table, not " .. type(d.config.distributed))
  end
  local said = given.strategy == nil and "fsdp2" or given.strategy
  local name = type(said) == "string" and names[said:lower()]
  if not name then
    d:error("unknown-word", "distributed.strategy",
      ("Unknown strategy: %s. Valid strategies: ddp, fsdp2, megatron-fsdp, megatron_fsdp, mfsdp"):format(tostring(said)),
      type(said) == "string" and values.near(said, { "ddp", "fsdp2", "megatron_fsdp", "mfsdp" }) or nil)
    name = "fsdp2"
  end
  local own, keys = {}, keys_of[name]
  for key, value in pairs(given) do
    if not common[key] then own[key] = value end
  end
  local options = values.section(d, "distributed", own, keys,
    ("Unknown options for strategy '%s': '%%s'"):format(name))
  return name, options
end

local scopes = { all = true, language = true, vision = true, audio = true, multimodal = true }
local function scope_error(d, text)
  d:error("ac-scope", "distributed.activation_checkpointing_scope", "activation_checkpointing_scope " .. text,
    "one or several of: all, audio, language, multimodal, vision; all stands alone")
end

-- Returns the set of parts that a scope such as "language+vision" names, or nil after an error.
local function scope_parts(d, value)
  if value == nil then return { all = true } end
  local list = type(value) == "string" and { value } or value
  if type(list) ~= "table" then
    scope_error(d, "must be a string or list of strings, not " .. tostring(value))
    return nil
  end
  local found, n = {}, 0
  for _, item in pairs(list) do
    if type(item) ~= "string" then
      scope_error(d, "entries must be strings, not " .. tostring(item))
      return nil
    end
    for part in item:lower():gsub("-", "_"):gsub("[^,+]+", function(p) return p:match "^%s*(.-)%s*$" end)
      :gmatch "[^,+]+" do
      if part == "default" or part == "auto" then part = "all" end
      if not scopes[part] then
        scope_error(d, ("must use only known parts, got '%s'"):format(part))
        return nil
      end
      if not found[part] then found[part], n = true, n + 1 end
    end
  end
  if found.all and n > 1 then
    scope_error(d, "'all' cannot be combined with other scopes")
    return nil
  end
  return n > 0 and found or { all = true }
end

local modes = { off = "none", none = "none", disabled = "none", no = "none", ["false"] = "none", on = "full",
  full = "full", enabled = "full", yes = "full", ["true"] = "full", selective = "selective" }

-- Returns ac{}, or nil if nothing is recomputed. Automodel recomputes attention, MLP and norms of
-- each layer separately.
function options_of.checkpointing(d, given, options, strategy, family)
  local at = "distributed.activation_checkpointing"
  local value = given.activation_checkpointing
  local mode = modes[tostring(value or false):lower()]
  if not mode then
    d:error("unknown-word", at, ("activation_checkpointing = '%s' must be a boolean or one of 'full', 'selective', "
      .. "'false'"):format(tostring(value)), "true, false or \"selective\"")
    return nil
  end
  local parts = scope_parts(d, options.activation_checkpointing_scope)
  if mode == "none" or not parts then return nil end
  if strategy == "megatron_fsdp" then
    if mode == "selective" then
      d:error("strategy-option", at, "selective activation checkpointing is supported only for FSDP2 and DDP configs",
        "activation_checkpointing = true, or strategy = \"fsdp2\"")
      return nil
    end
    if d.original then
      d:note("ac-dropped", at, "megatron_fsdp logs an error and recomputes nothing")
      return nil
    end
    d:note("ac-dropped", at, "Automodel's megatron_fsdp would log an error and recompute nothing; here it is "
      .. "done: the plan recomputes modules")
  end
  if not parts.all and not parts.language then
    d:error("ac-matched-nothing", "distributed.activation_checkpointing_scope",
      "activation_checkpointing_scope names no part of a language model: nothing would be recomputed",
      "\"language\" or \"all\"")
    return nil
  end
  if mode == "selective" then
    d:note("dialect-differs", at, "Automodel keeps the outputs of a list of ops; Tandem recomputes attention modules")
    return ac "selective"
  end
  if options.experts then return experts.checkpointing(d, options.experts) end
  if not family then return ac "full" end
  local modules = hybrid.recomputed(family, d.config.model)
  if modules then return ac { modules = modules } end
  modules = {}
  for _, name in ipairs { "self_attn", "mlp", "input_layernorm", "post_attention_layernorm",
    "pre_feedforward_layernorm", "post_feedforward_layernorm" } do
    modules[#modules + 1] = tensor.translate(family, "model.layers.*." .. name)
  end
  return ac { modules = modules }
end

-- Returns the dtypes of a policy. In YAML, an mp_policy without cast_forward_inputs does not cast
-- inputs.
local function policy_of(d, options)
  local given = options.mp_policy
  if given == nil then return { param = "bf16", reduce = "fp32", output = "bf16", cast_forward_inputs = true } end
  local at = "distributed.mp_policy"
  if type(given) ~= "table" then
    d:error("wrong-type", at, "mp_policy must be a table, not " .. tostring(given))
    given = {}
  end
  local p = values.section(d, at, given, { param_dtype = { "any" }, reduce_dtype = { "any" },
    output_dtype = { "any" }, cast_forward_inputs = { "boolean", false } })
  return { param = values.dtype(d, at .. ".param_dtype", p.param_dtype),
    reduce = values.dtype(d, at .. ".reduce_dtype", p.reduce_dtype),
    output = values.dtype(d, at .. ".output_dtype", p.output_dtype), cast_forward_inputs = p.cast_forward_inputs }
end

local function refuse(d, options, list)
  for key, why in pairs(list) do
    if options[key] then d:error("dialect-unsupported", "distributed." .. key, ("%s: %s"):format(key, why), "leave it out") end
  end
end

-- Returns true if units are offloaded (CPUOffloadPolicy). The key is true, or a table with pin_memory.
local function offload_of(d, options)
  local given = options.offload_policy
  if given == nil or given == false then return nil end
  if given ~= true and type(given) ~= "table" then
    d:error("wrong-type", "distributed.offload_policy", ("offload_policy must be a table, not %s"):format(tostring(given)),
      "offload_policy = { pin_memory = true }")
  end
  return true
end

-- Returns fsdp2{}. All layers except the last are resharded after forward. In a pipeline they stay
-- gathered for the step. Automodel means to keep them gathered, too, but looks for the pipeline in
-- a mesh that never contains it, so it reshards.
local function fsdp2_pass(d, options, n_stages)
  refuse(d, options, {
    autocast_dtype = "ops run in precision.compute; there is no autocast",
  })
  local reshard, last, keep = options.reshard_after_forward, true, false
  if options.experts then -- resharding applies to every unit, including the root; in a pipeline the units stay gathered
    reshard = options.experts.reshard_after_forward
    keep = n_stages > 1 and not reshard
  elseif reshard == nil then
    reshard, last = true, false
    if n_stages > 1 and d.original then
      d:note("reshard-under-pp", "distributed", "layers of a pipeline should stay gathered, but Automodel looks "
        .. "for 'pp' in the data mesh: they are gathered again for every micro-batch")
    elseif n_stages > 1 then
      reshard, last, keep = false, true, true
    end
  end
  local forward, backward = options.fsdp2_forward_prefetch_depth, options.fsdp2_backward_prefetch_depth
  local depth = options.enable_fsdp2_prefetch and math.max(forward, backward) or 1
  if options.enable_fsdp2_prefetch and forward ~= backward then
    d:note("dialect-differs", "distributed.enable_fsdp2_prefetch",
      ("prefetch depths are %d forward and %d backward; Tandem uses %d for both"):format(forward, backward, depth))
  end
  local policy = policy_of(d, options)
  options.policy = policy
  local special = not policy.cast_forward_inputs or (policy.output and policy.output ~= policy.param)
  return fsdp2 { reshard_after_forward = reshard, reshard_last = last, keep_gathered = keep, prefetch = depth,
    reshard_root = options.experts and reshard or nil,
    defer_grad_sync = options.defer_fsdp_grad_sync, offload = offload_of(d, options),
    mp = special and policy or nil }
end

local levels = { [0] = "no_shard", "optim", "optim_grads", "optim_grads_params" }

local function zero_strategy(d, options)
  local key = options.data_parallel_sharding_strategy ~= nil and "data_parallel_sharding_strategy"
    or "zero_dp_strategy"
  local value = options[key]
  if value == nil then return "optim_grads_params" end
  if levels[value] then return levels[value] end
  for i = 0, 3 do if levels[i] == value then return value end end
  d:error("unknown-word", "distributed." .. key, ("%s = '%s' is not known"):format(key, tostring(value)),
    "one of: no_shard, optim, optim_grads, optim_grads_params")
  return "optim_grads_params"
end

-- Checks the list of unit modules. The plan makes each block a unit, whatever its class. With an
-- empty list, Automodel divides by zero.
local function megatron_units(d, options)
  local given = options.megatron_fsdp_unit_modules
  if given == nil then return nil end
  local at = "distributed.megatron_fsdp_unit_modules"
  if #given == 0 then
    d:mistake("units-empty", at, "there are no unit modules, and the bucket size is divided by their number, 0",
      "leave it out for one unit a block")
    return {}
  end
  for _, class in ipairs(given) do
    if type(class) ~= "string" or not (class:match "Layer$" or class:match "Block$") then
      d:error("dialect-unsupported", at, ("unit module '%s' is not supported: units are blocks"):format(tostring(class)),
        "the class of the model's decoder layers")
    end
  end
  return nil
end

-- Returns zero{}, and true if it shards.
local function megatron_pass(d, options)
  local strategy = zero_strategy(d, options)
  if strategy == "optim_grads" and not options.overlap_grad_reduce then
    d:error("strategy-option", "distributed.overlap_grad_reduce",
      "optim_grads with overlap_grad_reduce = false: the strategy scatters gradients as soon as they are computed",
      "overlap_grad_reduce = true, or zero_dp_strategy = 1")
  end
  if options.average_in_collective and not options.calculate_per_token_loss then
    d:error("strategy-option", "distributed.average_in_collective",
      "average_in_collective is not supported without calculate_per_token_loss", "leave it out")
  end
  refuse(d, options, { report_nan_in_param_grad = "a run stops at the first number that is not finite" })
  -- Updated weights are gathered after the step. check_for_nan_in_grad has no effect, as in
  -- Automodel.
  local sharded = strategy == "optim" or strategy == "optim_grads"
  return zero { strategy = strategy, units = megatron_units(d, options), gather = sharded and "eager" or nil,
    overlap_grad_reduce = options.overlap_grad_reduce, overlap_param_gather = options.overlap_param_gather,
    grad_reduce_in_fp32 = options.grad_reduce_in_fp32, preserve_fp32_weights = options.preserve_fp32_weights,
    disable_bucketing = options.disable_bucketing, fsdp_double_buffer = options.fsdp_double_buffer,
    nccl_ub = options.nccl_ub, calculate_per_token_loss = options.calculate_per_token_loss or nil,
    average_in_collective = options.average_in_collective or nil,
    keep_fp8_transpose_cache = options.keep_fp8_transpose_cache or nil }, strategy ~= "no_shard"
end

-- Returns the data pass, and true if it shards over dp_shard.
function options_of.data(d, strategy, options, n_stages)
  if strategy == "fsdp2" then return fsdp2_pass(d, options, n_stages), true end
  refuse(d, options, { autocast_dtype = "ops run in precision.compute; there is no autocast" })
  if strategy == "ddp" then return ddp { bucket_mib = options.bucket_cap_mb }, false end
  return megatron_pass(d, options)
end

-- Returns the dtypes of storage, compute and reduction. By default, Automodel stores weights in 16
-- bits without a 32-bit copy; a note warns of it.
function options_of.precision(d, strategy, options, hf)
  local storage = values.dtype(d, "hf.torch_dtype", hf.torch_dtype) or "bf16"
  if storage == "bf16" and not options.preserve_fp32_weights then
    d:note("bf16-storage", "hf", "weights and moments are stored in bf16: updates smaller than 1/256 of a weight are lost")
  end
  if strategy ~= "fsdp2" then
    -- zero{} decides which tensors are stored or summed in fp32
    return { param = storage, compute = storage, reduce = storage }
  end
  local p = options.policy
  local compute = p.param or storage
  return { param = storage, compute = compute, reduce = p.reduce or compute }
end

local fp8_keys = { enabled = { "boolean", true }, recipe_name = { "text", "tensorwise" }, filter_fqns = { "list", {} },
  enable_fsdp_float8_all_gather = { "boolean", false }, precompute_float8_dynamic_scale_for_fsdp = { "boolean", false },
  force_recompute_fp8_weight_in_bwd = { "boolean", false }, emulate = { "boolean", false } }

-- Returns float8{}, which runs before tensor parallelism, as in Automodel. Layers with a size that
-- is not a multiple of 16 stay as they are.
function options_of.float8(d, family)
  if d.config.fp8 == nil then return nil end
  local given = d:section("fp8", fp8_keys)
  if not given.enabled then return nil end
  if given.recipe_name ~= "tensorwise" and given.recipe_name ~= "rowwise" then
    d:error(given.recipe_name == "rowwise_with_gw_hp" and "dialect-unsupported" or "unknown-word", "fp8.recipe_name",
      ("recipe_name = '%s' is not supported: choose tensorwise or "
        .. "rowwise"):format(given.recipe_name), "recipe_name = \"rowwise\"")
  end
  local skip, head = {}, true
  for _, name in ipairs(given.filter_fqns) do
    local own = type(name) == "string" and tensor.translate(family, name)
    if name == "lm_head" then
      head = false
    elseif own then
      skip[#skip + 1] = own
    else
      d:error("pattern-matched-nothing", "fp8.filter_fqns", ("filter_fqns: '%s' names no module of the model"):format(
        tostring(name)), "for example model.layers.0.mlp.down_proj")
    end
  end
  return float8 { recipe = given.recipe_name, head = head, skip = #skip > 0 and skip or nil, skip_indivisible = true,
    fsdp_gather = given.enable_fsdp_float8_all_gather or nil }
end

local optimizer_keys = { _target_ = { "text", "torch.optim.AdamW" }, lr = { "number", 1e-3 }, betas = { "list" },
  eps = { "number", 1e-8 }, weight_decay = { "number", 0.01 }, momentum = { "number", 0 },
  adam_w_mode = { "boolean", true }, bias_correction = { "boolean", true }, master_weights = { "boolean", false },
  store_param_remainders = { "boolean", false }, exp_avg_dtype = { "any" }, exp_avg_sq_dtype = { "any" },
  foreach = { "boolean", false }, fused = { "boolean", false } }
-- Optimizers that are planned as AdamW. FusedAdam decays weights in the same way. Adam instead adds
-- the decay to the gradients.
local as_adamw = { AdamW = true, Adam = true, FusedAdam = true }
local schedule_keys = { lr_warmup_steps = { "integer" }, lr_decay_steps = { "integer" }, min_lr = { "number" },
  lr_decay_style = { "word", "cosine", { "cosine" } } }

-- Returns the plan's optimizer, with the defaults of torch. By default, gradients are clipped at
-- norm 1.
function options_of.optimizer(d)
  local o, s = d:section("optimizer", optimizer_keys), d:section("lr_scheduler", schedule_keys)
  local clip = d:section("clip_grad_norm", { max_norm = { "number", 1.0 } }).max_norm
  local options = { lr = o.lr, weight_decay = o.weight_decay, clip_norm = clip, warmup_steps = s.lr_warmup_steps,
    total_steps = s.lr_decay_steps, min_lr_ratio = s.min_lr and s.min_lr / o.lr or nil }
  local name = o._target_:match "[%w_]+$"
  if name == "SGD" and o.momentum == 0 then return sgd(options) end
  if name == "Adam" and o.weight_decay ~= 0 then
    d:note("dialect-differs", "optimizer._target_", ("Adam adds weight_decay = %s to the gradient; Tandem shrinks "
      .. "the weight, as in AdamW: memory and time are equal, but the trained weights differ"):format(o.weight_decay))
  end
  if o.master_weights then
    d:note("dialect-differs", "optimizer.master_weights", "master_weights has no effect: stored weights have the "
      .. "type of hf.torch_dtype")
  end
  if not as_adamw[name] then
    d:error("unknown-word", "optimizer._target_",
      ("optimizer '%s' is not supported: choose AdamW, or SGD without momentum"):format(o._target_), "torch.optim.AdamW")
  end
  local betas = o.betas or { 0.9, 0.999 }
  options.beta1, options.beta2, options.eps = betas[1], betas[2], o.eps
  return adamw(options)
end

return options_of
