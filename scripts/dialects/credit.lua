-- Turns miles-credit's configuration into a plan: return require "dialects.credit" { trainer = {
-- parallelism = { ... } }, ... }. The passes are, in order: domain, tensor, checkpointing, data
-- (FSDP2 or DDP). A mistake that miles-credit silently accepts is refused; with as = "original" it
-- becomes a finding.
local dialect = require "tandem.dialect"
local values = require "tandem.dialect_values"
local credit_model = require "tandem.credit_model"

local top_keys = { as = true, name = true, steps = true, data = true, cluster = true, model = true, trainer = true,
  seed = true, seq_length = true, field = true, tp_function = true, world_size = true, loss = true, predict = true,
  pbs = true, slurm = true, save_loc = true, preblocks = true, postblocks = true, inference = true, metrics = true,
  validation_data = true }
local trainer_keys = {
  parallelism = { "any" }, mode = { "any" }, domain_parallel_size = { "integer", 1 }, type = { "text" },
  train_batch_size = { "integer", 1 }, grad_accum_every = { "integer", 1 }, amp = { "boolean", false },
  fsdp2_mp_policy = { "any" }, activation_checkpoint = { "boolean", false }, use_mixed_precision = { "boolean", false },
  mixed_precision = { "any" }, cpu_offload = { "boolean", false }, checkpoint_all_layers = { "boolean", false },
  use_spectral_norm = { "boolean" }, use_ema = { "boolean", false }, seed_by_dp_rank = { "any" },
  learning_rate = { "number", 1e-3 }, weight_decay = { "number", 0 }, grad_max_norm = { "any" },
}
-- These keys set the length, the intervals and the scheduler of a training run, but do not change a
-- step.
for _, key in ipairs { "batches_per_epoch", "valid_batches_per_epoch", "valid_batch_size", "thread_workers",
  "valid_thread_workers", "prefetch_factor", "epochs", "num_epoch", "start_epoch", "reload_epoch", "train_one_epoch",
  "stopping_patience", "use_scheduler", "scheduler", "update_learning_rate", "load_weights", "load_optimizer",
  "load_scaler", "load_scheduler", "load_sheduler", "skip_validation", "save_backup_weights", "save_best_weights",
  "save_every_epoch", "save_metric_vars", "save_data", "use_tensorboard", "ema_decay", "teacher_forcing_ratio",
  "stop_rollout", "batch_iterations" } do trainer_keys[key] = { "any" } end
for key, row in pairs { ensemble_size = { "integer", 1 }, compile = { "boolean", false },
  apply_grad_penalty = { "boolean", false } } do trainer_keys[key] = row end
-- miles-credit's trainers. 2: the trainer reads trainer.parallelism. 1: it may read trainer.mode
-- instead. 0: this version of Tandem does not plan it.
local trainer_types = { ["era5-gen1"] = 1, era5 = 1, cam = 1, gen2 = 2, ["era5-gen2"] = 2, ["era5-diffusion"] = 0,
  ["era5-ensemble"] = 0, ["ic-opt"] = 0, conus404 = 0, ["standard-les"] = 0, ["standard-wrf"] = 0,
  ["multi-step-wrf"] = 0, samudra = 0 }
local parallelism_keys = { data = true, tensor = true, domain = true }
local data_modes = { fsdp2 = true, ddp = true, none = true }

local function degree(d, block, key)
  local value, at = block[key], "trainer.parallelism." .. key
  if value == nil then return 1 end
  local n = math.tointeger(tonumber(value))
  if not n then
    d:error("wrong-type", at, ("%s must be an integer >= 1, got '%s'"):format(at, tostring(value)))
  elseif n < 1 then
    d:error("out-of-range", at, ("%s must be an integer >= 1, got %d"):format(at, n))
  end
  return n and n >= 1 and n or 1
end

-- Returns trainer.mode of the first generation of trainers in the form of today's
-- trainer.parallelism, or nil after an error.
local function from_mode(d, trainer)
  local modes = { fsdp = "fsdp2", ddp = "ddp", domain_parallel = "none", ["fsdp+domain_parallel"] = "fsdp2", none = "none" }
  local data = modes[trainer.mode]
  if not data then
    d:error("unknown-word", "trainer.mode", ("trainer.mode = '%s' is not known"):format(tostring(trainer.mode)),
      "one of: ddp, domain_parallel, fsdp, fsdp+domain_parallel, none")
    return nil
  end
  local domain = trainer.domain_parallel_size
  if trainer.mode:match "domain" and domain <= 1 then
    d:error("out-of-range", "trainer.domain_parallel_size",
      ("mode='%s' requires trainer.domain_parallel_size > 1, not %d"):format(trainer.mode, domain))
  end
  if data == "fsdp2" then
    d:note("dialect-differs", "trainer.mode", "mode = 'fsdp' wraps modules by class and by size (100,000 parameters); "
      .. "Tandem plans the units of FSDP2")
  end
  return { data = data, tensor = 1, domain = domain }
end

local function parallelism_of(d, trainer)
  local block, at = trainer.parallelism, "trainer.parallelism"
  if block == nil and trainer.mode ~= nil then return from_mode(d, trainer) end
  if block == nil then
    d:error("missing-key", "trainer", ("configs must define %s with data, tensor, and domain fields"):format(at),
      "parallelism = { data = \"fsdp2\", tensor = 1, domain = 1 }; trainer.mode of the first trainer is read too")
    return nil
  end
  if type(block) ~= "table" then
    d:error("wrong-type", at, ("%s must be a table, not %s"):format(at, tostring(block)))
    return nil
  end
  d:known_keys(block, parallelism_keys, at, at)
  local data = block.data == nil and "none" or block.data
  if not data_modes[data] then
    d:error("unknown-word", at .. ".data", ("%s.data must be 'fsdp2', 'ddp', or 'none', got '%s'"):format(at, tostring(data)),
      type(data) == "string" and values.near(data, { "fsdp2", "ddp", "none" }) or nil)
    data = "none"
  end
  return { data = data, tensor = degree(d, block, "tensor"), domain = degree(d, block, "domain") }
end

-- Returns dp = world / (tensor x domain), or nil after an error.
local function data_size(d, p)
  local world, told = values.world(d)
  if not world then
    if not told then
      d:error("missing-key", "world_size", "world_size is missing: it is the number of processes", "world_size = 8")
    end
    return nil
  end
  local others = p.tensor * p.domain
  if world % others ~= 0 then
    d:error("mesh-product", "trainer.parallelism",
      ("world_size=%d not divisible by tensor*domain=%d"):format(world, others),
      "their product may be " .. dialect.divisors(world))
    return nil
  end
  return world // others
end

local function check_counts(d, trainer)
  for _, key in ipairs { "train_batch_size", "grad_accum_every", "ensemble_size" } do
    if trainer[key] < 1 then
      d:error("out-of-range", "trainer." .. key, ("trainer.%s must be an integer >= 1, not %d"):format(key, trainer[key]))
    end
  end
end

local function check_type(d, trainer)
  local kind = trainer.type
  if kind == nil then return end
  local names = {}
  for name in pairs(trainer_types) do names[#names + 1] = name end
  if not trainer_types[kind] then
    d:error("unknown-word", "trainer.type", ("Trainer type %s not supported. Exiting."):format(kind),
      values.near(kind, names) or "gen2")
  elseif trainer_types[kind] == 0 then
    d:error("dialect-unsupported", "trainer.type", ("this version does not plan trainer.type = '%s'"):format(kind),
      "era5-gen1 or gen2")
  elseif trainer_types[kind] == 2 and trainer.parallelism == nil then
    d:error("missing-key", "trainer", ("trainer.type = '%s' reads trainer.parallelism"):format(kind),
      "parallelism = { data = \"fsdp2\", tensor = 1, domain = 1 }")
  end
end

-- Reports that miles-credit's gradients under domain differ from those of one rank. The plan has
-- the gradients of one rank.
local function tell_of_domain(d, p, c, field)
  if p.domain <= 1 or not field then return end
  local told = d.original and d.note or d.warn
  local why = { "group norm: its all-reduce is outside of autograd, so the gradient of its input lacks the terms of "
    .. "other ranks" }
  for _, window in ipairs(type(c.global_window_size) == "table" and c.global_window_size or {}) do
    if window > 1 then
      why[#why + 1] = "long attention: it only sees points within the rows of a rank, so its function "
        .. "depends on domain"
      break
    end
  end
  told(d, "dialect-differs", "trainer.parallelism.domain", ("domain = %d: the gradients of miles-credit differ from "
    .. "those of one rank, and from this plan's. %s"):format(p.domain, table.concat(why, "; ")))
end

-- Checks that the rows of the padded grid form whole windows on every rank of domain.
local function check_domain(d, p, c, field)
  if p.domain <= 1 then return end
  local height, at = c.image_height or (type(field) == "table" and field.height), "trainer.parallelism.domain"
  local uneven = height and height % p.domain ~= 0
  if uneven then
    d:error("divides-domain", at, ("image_height = %d is not divisible by domain = %d"):format(height, p.domain),
      "domain may be " .. dialect.divisors(height))
  end
  local pad = c.pad_lat or 0
  if type(pad) == "table" then pad = pad[1] + pad[2] else pad = 2 * pad end
  local rows = height and height + (c.pad_rows or pad)
  local divisor = p.domain * (c.local_window_size or 1)
  for _, stride in ipairs(c.cross_embed_strides or {}) do divisor = divisor * stride end
  if rows and not uneven and rows % divisor ~= 0 then
    d:mistake("divides-domain", at,
      ("%d padded rows %% (domain %d x window %d x strides) = %d: windows would straddle ranks"):format(rows, p.domain,
        c.local_window_size or 1, divisor), ("rows must be a multiple of %d"):format(divisor))
  end
  if d.n_errors == 0 and not field then
    d:error("axis-unsupported", at, ("domain = %d needs a grid, and a token model has none"):format(p.domain),
      "domain = 1")
  end
end

local tp_functions = { "apply_native_tensor_parallel", "apply_tensor_parallel" }

-- Checks the function for tensor parallelism. miles-credit has two, and has switched off the one
-- named apply_tensor_parallel for every model.
local function check_tp_function(d, name)
  if name == nil or name == tp_functions[1] then return end
  if name == tp_functions[2] then
    d:error("tp-switched-off", "tp_function", name .. " raises NotImplementedError in miles-credit (its issue #415)",
      "tp_function = \"" .. tp_functions[1] .. "\", or leave it out")
  else
    d:error("unknown-word", "tp_function", ("tp_function = '%s' is not known"):format(tostring(name)),
      type(name) == "string" and values.near(name, tp_functions) or table.concat(tp_functions, ", "))
  end
end

-- Checks tensor parallelism. miles-credit silently leaves blocks with spectral norm out of it. If
-- all blocks have spectral norm, tensor parallelism splits nothing. Returns the number of ranks
-- that then repeat the same work; otherwise 1.
local function check_tensor(d, p, c, spectral)
  local at = "trainer.parallelism.tensor"
  if spectral then
    if p.tensor > 1 then
      d:mistake("tp-matched-nothing", at,
        ("tensor = %d has NO effect: every block with a _tp_plan carries spectral norm, so nothing is split and %d "
          .. "ranks repeat identical work"):format(p.tensor, p.tensor),
        "use_spectral_norm = false, or tensor = 1, or a plan of your own: tp{} takes the norm of the whole weight")
    end
    return p.tensor
  end
  for level, dim in ipairs(type(c.dim) == "table" and c.dim or {}) do
    local heads = c.heads or (c.dim_head and dim // c.dim_head)
    if heads and heads % p.tensor ~= 0 then
      d:error("divides-heads", at, ("level %d: heads=%d not divisible by tp_size=%d"):format(level - 1, heads, p.tensor),
        "tensor may be " .. dialect.divisors(heads))
    end
  end
  return 1
end

-- Returns the model with spectral norm in all its linears. The model must have the option use_spectral_norm.
local function normed(d, model, c)
  if c.use_spectral_norm then return model end
  if c.use_spectral_norm == nil then
    d:error("dialect-unsupported", "trainer.use_spectral_norm", "the model has no option use_spectral_norm",
      "models.wxformer, or spectral_norm = true in the nn.linear and nn.attention of your own")
    return model
  end
  local own = dialect.copy(model)
  own.config = dialect.copy(c)
  own.config.use_spectral_norm = true
  return own
end

local policy_keys = { param_dtype = { "any" }, reduce_dtype = { "any" }, output_dtype = { "any" } }

-- Returns the plan's dtypes. Mixed precision is used only under amp. With spectral norm, types stay
-- fp32 unless a policy is given.
local function precision_of(d, trainer, p, spectral)
  local at = "trainer.fsdp2_mp_policy"
  local policy = values.section(d, at, trainer.fsdp2_mp_policy or {}, policy_keys)
  local param = values.dtype(d, at .. ".param_dtype", policy.param_dtype) or "bf16"
  local reduce = values.dtype(d, at .. ".reduce_dtype", policy.reduce_dtype) or "fp32"
  local output = values.dtype(d, at .. ".output_dtype", policy.output_dtype) or "bf16"
  local mixed = trainer.use_mixed_precision
  for _, dtype in pairs(type(trainer.mixed_precision) == "table" and trainer.mixed_precision or {}) do
    mixed = mixed or dtype ~= "float32"
  end
  if mixed then
    d:error("dialect-unsupported", "trainer.use_mixed_precision", "mixed_precision of the first trainer belongs "
      .. "to FSDP1 and is not supported",
      "amp = true and fsdp2_mp_policy = { param_dtype = \"bfloat16\" }")
  end
  if not trainer.amp then
    if trainer.fsdp2_mp_policy ~= nil then
      d:warn("not-applied", at, "fsdp2_mp_policy is given but trainer.amp is off: everything is fp32")
    end
    return { param = "fp32", compute = "fp32", reduce = "fp32" }
  end
  if spectral and trainer.fsdp2_mp_policy == nil then
    d:note("not-applied", "trainer.amp", "amp is on, but with spectral norm and no fsdp2_mp_policy all is fp32")
    return { param = "fp32", compute = "fp32", reduce = "fp32" }
  end
  if p.data ~= "fsdp2" then return { param = "fp32", compute = "bf16", reduce = "fp32" } end
  if output ~= param then
    d:error("dialect-unsupported", at .. ".output_dtype",
      ("output_dtype = %s: a unit's output has the type in which it computes, %s"):format(output, param))
  end
  if spectral and param ~= "fp32" then
    d:note("spectral-norm", at .. ".param_dtype",
      ("u and v of spectral norm stay fp32; miles-credit casts them to param_dtype = %s"):format(param))
  end
  return { param = "fp32", compute = param, reduce = reduce }
end

local function check_seed(d, trainer, dp)
  local when, at = trainer.seed_by_dp_rank, "trainer.seed_by_dp_rank"
  if when == nil or when == "after_build" then return end
  if when ~= "before_build" then
    d:error("unknown-word", at, ("seed_by_dp_rank = '%s' is not known"):format(tostring(when)),
      "after_build, or before_build")
  elseif dp > 1 then
    d:mistake("seed-before-build", at, ("seeds differ by dp rank before the model is built: %d replicas start from "
      .. "different weights"):format(dp), "seed_by_dp_rank = \"after_build\": same weights, different random numbers")
  end
end

local function optimizer_of(d, trainer)
  local clip = trainer.grad_max_norm
  if clip == "dynamic" then
    d:mistake("clip-dynamic", "trainer.grad_max_norm",
      "grad_max_norm = 'dynamic' clips by a norm that counts replicas, or not at all", "grad_max_norm = 1.0")
    clip = 0
  elseif clip ~= nil and type(clip) ~= "number" then
    d:error("wrong-type", "trainer.grad_max_norm", ("grad_max_norm must be a number, not '%s'"):format(tostring(clip)))
    clip = nil
  end
  return adamw { lr = trainer.learning_rate, weight_decay = trainer.weight_decay, beta1 = 0.9, beta2 = 0.95,
    clip_norm = clip or 0 }
end

-- Returns the pass for the data ranks and their axis of the mesh: FSDP2, DDP, or nil. With nil,
-- each data rank trains a separate model.
local function data_pass(d, trainer, p, dp)
  if p.data == "fsdp2" then return fsdp2 {}, { dp_shard = dp } end
  if p.data == "ddp" then return ddp {}, { dp_replicate = dp } end
  if dp > 1 then
    d:mistake("data-none", "trainer.parallelism.data",
      ("data = 'none' with dp = %d: no gradient is summed, every replica trains a model of its own"):format(dp),
      "data = \"fsdp2\" or \"ddp\"")
  end
  return nil, {} -- with as = "original", one of the replicas is planned
end

-- Returns the part of the cluster that one of dp independent replicas uses: whole nodes, if dp
-- divides them.
local function share_of(cluster, dp)
  if type(cluster) ~= "table" or dp == 1 then return cluster end
  local own = dialect.copy(cluster)
  local nodes = own.nodes or 1
  if nodes % dp == 0 then
    own.nodes = nodes // dp
  else
    own.nodes, own.devices_per_node = 1, nodes * (own.devices_per_node or 0) // dp
  end
  return own
end

-- Returns the plan's batch: sequences of seq_length tokens or, with field = { channels, targets,
-- height, width }, fields.
local function batch_of(config, field, global, micro)
  local batch = { global = global, micro = micro, seq = not field and config.seq_length or nil }
  for key, value in pairs(type(field) == "table" and field or {}) do batch[key] = value end
  return batch
end

return dialect.wrap(function(config)
  local d = dialect.new("miles-credit", config)
  d:known_keys(config, top_keys, "", "the configuration")
  local trainer = d:section("trainer", trainer_keys)
  if d.n_errors > 0 and config.trainer ~= nil and type(config.trainer) ~= "table" then d:stop() end
  local p = parallelism_of(d, trainer)
  if not p then d:stop() end
  check_type(d, trainer)
  check_counts(d, trainer)
  local block, model, field = config.model, config.model, config.field
  local own = type(block) == "table" and rawget(block, "type") ~= nil and rawget(block, "build") == nil
  if block == nil then
    d:error("missing-key", "model", "model is missing: it is miles-credit's model block, or a model of your own",
      "model = { type = \"wxformer\" }")
    d:stop()
  end
  if type(block) == "table" and not own and getmetatable(block) == nil and rawget(block, "build") == nil then
    d:error("missing-key", "model", "model.type is missing: it names the model", "type = \"wxformer\"")
    d:stop()
  end
  if own then
    model, field = credit_model.read(d, block)
    if not model then d:stop() end
    if p.tensor > 1 then
      d:error("tp-switched-off", "trainer.parallelism.tensor", ("a %s has no _tp_plan: apply_tensor_parallel raises "
        .. "NotImplementedError (its issue #415)"):format(block.type), "tensor = 1, or a model of your own with tp{}")
      d:stop()
    end
  end
  local c = type(model) == "table" and rawget(model, "config")
  if type(c) ~= "table" then c = {} end
  local spectral = trainer.use_spectral_norm or c.use_spectral_norm
  check_tp_function(d, config.tp_function)
  check_domain(d, p, c, field)
  tell_of_domain(d, p, c, field)
  local dp = data_size(d, p)
  if not dp then d:stop() end
  local repeated = check_tensor(d, p, c, spectral)
  check_seed(d, trainer, dp)
  local precision, optimizer = precision_of(d, trainer, p, spectral), optimizer_of(d, trainer)
  local pass, mesh = data_pass(d, trainer, p, dp)
  for key, why in pairs { cpu_offload = "parameters stay on the device in this version",
    checkpoint_all_layers = "blocks are recomputed whole", compile = "code is not compiled by this dialect",
    apply_grad_penalty = "gradient penalties are not supported" } do
    if trainer[key] then d:error("dialect-unsupported", "trainer." .. key, ("%s: %s"):format(key, why), "leave it out") end
  end
  if trainer.ensemble_size > 1 then
    d:error("dialect-unsupported", "trainer.ensemble_size", "ensembles are not supported", "ensemble_size = 1")
  end
  if trainer.use_ema then
    d:warn("not-applied", "trainer.use_ema", "use_ema: after each step miles-credit copies the weights that a rank "
      .. "keeps to the CPU and averages them there, in fp32. The plan has neither this copy nor its time; "
      .. "the step, the weights and the memory of the GPU stay the same",
      "the host needs 4 bytes for each parameter that a rank keeps")
  end
  if trainer.load_weights == true then
    d:warn("not-applied", "trainer.load_weights", "load_weights: the checkpoints of miles-credit are not read, so "
      .. "the weights are new", "`tandem run --load DIR` continues from a checkpoint of its own")
  end
  if spectral then model = normed(d, model, c) end
  d:stop()
  mesh.tp = p.tensor // repeated
  if p.domain > 1 then mesh.domain = p.domain end
  local micro, steps = trainer.train_batch_size, trainer.grad_accum_every
  local replicas = pass and dp or 1
  return plan {
    name = config.name, model = model, cluster = share_of(config.cluster, dp // replicas * repeated), data = config.data, seed = config.seed,
    steps = config.steps, original = d.original and d.system or nil,
    batch = batch_of(config, field, micro * replicas * steps, micro),
    mesh = mesh, precision = precision, optimizer = optimizer,
    parallel = values.passes(4, mesh.domain and domain {}, mesh.tp > 1 and tp { share_gathers = false, sync_replicated_gradients = true }, trainer.activation_checkpoint and ac "full", pass),
  }
end)
