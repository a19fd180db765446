-- The sections of a KempnerForge configuration: their keys, the defaults, and the checks. Checks
-- run in the order in which the sections are read.
local dialect = require "tandem.dialect"

local model_keys = {
  dim = { "integer", 4096 }, n_layers = { "integer", 32 }, n_heads = { "integer", 32 },
  n_kv_heads = { "integer" }, vocab_size = { "integer", 32000 }, ffn_dim_multiplier = { "number", 1.0 },
  ffn_hidden_dim = { "integer" }, norm_type = { "word", "rmsnorm", { "rmsnorm", "layernorm" } },
  norm_eps = { "number", 1e-5 }, activation = { "word", "silu", { "silu", "gelu", "relu" } },
  max_seq_len = { "integer", 2048 }, rope_theta = { "number", 10000.0 },
  tie_embeddings = { "boolean", false }, qk_norm = { "boolean", false }, init_std = { "number", 0.02 },
  model_type = { "word", "transformer", { "transformer" } },
  sdpa_backend = { "word", "auto", { "auto", "flash", "efficient", "cudnn", "math" } },
  attention_backend = { "word", "sdpa", { "sdpa", "flex" } },
  num_experts = { "integer", 0 }, moe_top_k = { "integer", 2 }, moe_frequency = { "integer", 1 },
  moe_router = { "word", "softmax_topk", { "softmax_topk", "sigmoid_topk" } },
  moe_shared_experts = { "integer", 0 }, moe_aux_loss_weight = { "number", 0.01 },
  moe_router_z_loss_weight = { "number", 0.0 }, moe_capacity_factor = { "number", 0.0 },
  moe_sequence_aux_loss_weight = { "number", 0.0 }, moe_gradient_scale = { "boolean", false },
  moe_bias_schedule = { "text", "constant" }, moe_packed_experts = { "boolean", false },
  moe_expert_ffn_multiplier = { "number", 1.0 },
}

local train_keys = {
  batch_size = { "integer", 8 }, seq_len = { "integer", 2048 }, max_steps = { "integer", 100000 },
  grad_accum_steps = { "integer", 1 }, grad_clip_norm = { "number", 1.0 }, seed = { "integer", 42 },
  compile_model = { "boolean", true },
  mixed_precision = { "word", "bf16", { "bf16", "fp16", "fp32", "fp8" } },
  activation_checkpointing = { "word", "none", { "none", "full", "selective" } },
  loss_fn = { "word", "cross_entropy", { "cross_entropy", "chunked_cross_entropy" } },
  z_loss_weight = { "number", 0.0 }, ce_chunk_size = { "integer", 0 },
  shutdown_timeout_sec = { "number", 600.0 }, nccl_health_check_interval = { "integer", 0 },
}

local optimizer_keys = {
  name = { "word", "adamw", { "adamw", "muon", "lion", "schedule_free_adamw" } },
  lr = { "number", 3e-4 }, weight_decay = { "number", 0.1 }, betas = { "list", { 0.9, 0.95 } },
  eps = { "number", 1e-8 }, fused = { "boolean", true }, muon_momentum = { "number", 0.95 },
  muon_ns_steps = { "integer", 5 }, muon_adam_lr = { "number" }, schedule_free_warmup_steps = { "integer", 0 },
}

local scheduler_keys = {
  name = { "word", "cosine", { "cosine", "linear", "wsd", "constant", "rex", "none" } },
  warmup_steps = { "integer", 2000 }, decay_steps = { "integer" }, min_lr_ratio = { "number", 0.1 },
  stable_steps = { "integer" }, wsd_decay_type = { "word", "cosine", { "cosine", "linear", "sqrt" } },
  rex_alpha = { "number", 1.0 },
}

local data_keys = {
  dataset_path = { "text", "" }, file_pattern = { "text", "*.npy" }, tokenizer_path = { "text", "" },
  num_workers = { "integer", 4 }, pin_memory = { "boolean", true }, prefetch_factor = { "integer", 2 },
  hf_dataset_name = { "text" }, hf_dataset_config = { "text" }, hf_dataset_split = { "text", "train" },
  hf_dataset_text_field = { "text", "text" }, hf_dataset_image_field = { "text", "image" },
  hf_dataset_prompt_field = { "text", "" }, hf_image_size = { "integer", 224 }, hf_streaming = { "boolean", false },
  pack_sequences = { "boolean", false }, datasets = { "list", {} }, mix_temperature = { "number", 1.0 },
  phases = { "list", {} }, anneal_start_step = { "integer", 0 }, anneal_weights = { "list", {} },
}

local eval_keys = {
  enabled = { "boolean", false }, interval = { "integer", 1000 }, steps = { "integer", 50 },
  dataset_path = { "text", "" }, file_pattern = { "text", "*.npy" }, hf_dataset_name = { "text", "" },
  hf_dataset_config = { "text" }, hf_dataset_split = { "text", "validation" },
}

local distributed_keys = {
  dp_shard = { "integer", -1 }, dp_replicate = { "integer", 1 }, tp = { "integer", 1 }, pp = { "integer", 1 },
  pp_schedule = { "word", "1f1b", { "1f1b", "gpipe", "interleaved_1f1b" } }, cp = { "integer", 1 },
  ep = { "integer", 1 }, nccl_timeout_sec = { "integer", 1800 }, backend = { "text", "cpu:gloo,cuda:nccl" },
}

local checkpoint_keys = {
  dir = { "text", "checkpoints" }, interval = { "integer", 1000 }, keep_last_n = { "integer", 3 },
  async_mode = { "word", "disabled", { "disabled", "async", "async_with_pinned_mem" } },
  load_path = { "text" }, export_dtype = { "word", "bfloat16", { "float32", "bfloat16" } },
  exclude_from_loading = { "list", {} }, dyn_ckpt_window = { "list" }, ignore_freeze_mismatch = { "boolean", false },
}

local metrics_keys = {
  log_interval = { "integer", 10 }, enable_wandb = { "boolean", false }, enable_tensorboard = { "boolean", false },
  wandb_project = { "text", "kempnerforge" }, wandb_run_name = { "text" }, tensorboard_dir = { "text", "tb_logs" },
}

local profiling_keys = {
  enable = { "boolean", false }, start_step = { "integer", 5 }, end_step = { "integer", 8 },
  trace_dir = { "text", "profiler_traces" },
}

-- ---- checks

local function number_text(value) return ("%.15g"):format(value) end

local function within(d, name, key, value, fits, range)
  if not fits(value) then
    d:error("out-of-range", name .. "." .. key, ("%s must be in %s: %s.%s = %s"):format(key, range, name, key,
      number_text(value)))
  end
end

local function check_experts(d, m)
  if m.num_experts <= 0 then return end  -- for a dense model, KempnerForge does not read the keys of experts
  d:bounded(m, "model", { "moe_top_k", "moe_frequency", "moe_expert_ffn_multiplier" }, "positive")
  if m.moe_top_k and m.moe_top_k > m.num_experts then
    d:error("out-of-range", "model.moe_top_k", ("moe_top_k (%d) must be <= num_experts (%d)"):format(m.moe_top_k,
      m.num_experts))
  end
  d:bounded(m, "model", { "moe_router_z_loss_weight", "moe_sequence_aux_loss_weight",
    "moe_aux_loss_weight", "moe_capacity_factor" }, "non-negative")
  local known = { constant = true, cosine_decay = true, linear_warmup = true }
  if not known[m.moe_bias_schedule] then
    d:error("unknown-word", "model.moe_bias_schedule", ("Unknown moe_bias_schedule: '%s'"):format(
      m.moe_bias_schedule), "options: constant, cosine_decay, linear_warmup")
  end
end

local function check_heads(d, m)
  if not (m.dim and m.n_heads) then return end
  if m.dim % m.n_heads ~= 0 then
    local below = m.dim // m.n_heads * m.n_heads
    d:error("divides-heads", "model.dim", ("dim (%d) must be divisible by n_heads (%d)"):format(m.dim, m.n_heads),
      ("dim may be %s%d"):format(below > 0 and below .. " or " or "", below + m.n_heads))
  elseif (m.dim // m.n_heads) % 2 ~= 0 then
    d:error("out-of-range", "model.n_heads",
      ("head_dim = %d must be even: RoPE turns pairs"):format(m.dim // m.n_heads))
  end
  if m.n_kv_heads and m.n_heads % m.n_kv_heads ~= 0 then
    d:error("divides-heads", "model.n_kv_heads", ("n_heads (%d) must be divisible by n_kv_heads (%d)"):format(
      m.n_heads, m.n_kv_heads), "n_kv_heads may be " .. dialect.divisors(m.n_heads))
  end
end

local function check_model(d, m)
  local as_heads = m.n_kv_heads == nil
  d:bounded(m, "model", { "dim", "n_layers", "n_heads", "vocab_size", "n_kv_heads", "max_seq_len",
    "ffn_hidden_dim", "ffn_dim_multiplier", "rope_theta" }, "positive")
  if as_heads then m.n_kv_heads = m.n_heads end
  check_heads(d, m)
  check_experts(d, m)
end

local function check_train(d, t)
  d:bounded(t, "train", { "batch_size", "seq_len", "max_steps", "grad_accum_steps", "grad_clip_norm" }, "positive")
  d:bounded(t, "train", { "z_loss_weight", "seed" }, "non-negative")
end

local function check_optimizer(d, o)
  d:bounded(o, "optimizer", { "lr", "muon_ns_steps" }, "positive")
  d:bounded(o, "optimizer", { "weight_decay", "schedule_free_warmup_steps" }, "non-negative")
  for i = 1, 2 do
    local beta = o.betas[i]
    if type(beta) ~= "number" or beta < 0 or beta >= 1 then
      d:error("out-of-range", "optimizer.betas", "betas must be two numbers in [0, 1)")
      break
    end
  end
  within(d, "optimizer", "muon_momentum", o.muon_momentum, function(v) return v > 0 and v < 1 end, "(0, 1)")
end

local function check_scheduler(d, s)
  d:bounded(s, "scheduler", { "warmup_steps", "decay_steps" }, "non-negative")
  within(d, "scheduler", "min_lr_ratio", s.min_lr_ratio, function(v) return v >= 0 and v <= 1 end, "[0, 1]")
  d:bounded(s, "scheduler", { "rex_alpha" }, "positive")
end

local function check_phases(d, data)
  local last = -1
  for _, phase in ipairs(data.phases) do
    local start = type(phase) == "table" and phase.start_step or 0
    if type(start) ~= "number" or start <= last then
      d:error("out-of-range", "data.phases", "data.phases start_steps must be strictly increasing, from 0")
      break
    end
    if (phase.lr_scale or 1) <= 0 then
      d:error("out-of-range", "data.phases", ("lr_scale must be positive: it is %s"):format(
        number_text(phase.lr_scale)))
    end
    last = start
  end
  if #data.phases > 0 and data.anneal_start_step and data.anneal_start_step > 0 then
    d:error("option-contradicts", "data.anneal_start_step", "data.phases and data.anneal_start_step both set the time "
      .. "the mixture changes", "phases alone")
  end
end

local function check_data(d, data)
  d:bounded(data, "data", { "num_workers", "anneal_start_step" }, "non-negative")
  d:bounded(data, "data", { "prefetch_factor", "mix_temperature" }, "positive")
  for _, source in ipairs(data.datasets) do
    if type(source) ~= "table" or not ((source.path or "") ~= "" or (source.hf_name or "") ~= "") then
      d:error("missing-key", "data.datasets", ("DatasetSource '%s' must have either path or hf_name"):format(
        type(source) == "table" and tostring(source.name or "") or tostring(source)))
    elseif (source.weight or 1) <= 0 then
      d:error("out-of-range", "data.datasets", ("Dataset weight must be positive, got %s"):format(
        number_text(source.weight)))
    end
  end
  check_phases(d, data)
end

local function check_eval(d, e)
  d:bounded(e, "eval", { "interval", "steps" }, "positive")
end

local function check_distributed(d, c)
  if c.dp_shard == 0 or c.dp_shard < -1 then
    d:error("out-of-range", "distributed.dp_shard",
      ("dp_shard must be -1 (auto) or positive: it is %d"):format(c.dp_shard))
  end
  for _, axis in ipairs { "dp_replicate", "tp", "pp", "cp", "ep" } do
    if c[axis] < 1 then
      d:error("out-of-range", "distributed." .. axis, ("%s must be >= 1: it is %d"):format(axis, c[axis]),
        "1 leaves the axis out")
    end
  end
end

local function check_checkpoint(d, c)
  d:bounded(c, "checkpoint", { "interval" }, "positive")
  if c.interval and d.config.checkpoint and d.config.checkpoint.interval then
    d:note("dialect-differs", "checkpoint.interval", ("the plan saves no checkpoints: use "
      .. "`tandem run --save DIR --save-every %d`"):format(c.interval))
  end
  local window = c.dyn_ckpt_window
  if not window then return end
  local start, stop = window.start or 0, window.stop or 512
  if start < 0 or stop < start then
    d:error("out-of-range", "checkpoint.dyn_ckpt_window",
      ("dyn_ckpt_window: 0 <= start (%s) <= stop (%s) must hold"):format(number_text(start), number_text(stop)))
  end
  if (window.strategy or "power2") ~= "power2" then
    d:error("unknown-word", "checkpoint.dyn_ckpt_window", ("Unknown dyn_ckpt strategy: '%s'"):format(
      tostring(window.strategy)), "options: power2")
  end
end

local function check_metrics(d, m)
  d:bounded(m, "metrics", { "log_interval" }, "positive")
end

local function check_profiling(d, p)
  if p.end_step <= p.start_step then
    d:error("out-of-range", "profiling.end_step", ("end_step (%d) must be greater than start_step (%d)"):format(
      p.end_step, p.start_step))
  end
end

local sections = {
  { "model", model_keys, "ModelConfig", check_model },
  { "train", train_keys, "TrainConfig", check_train },
  { "optimizer", optimizer_keys, "OptimizerConfig", check_optimizer },
  { "scheduler", scheduler_keys, "SchedulerConfig", check_scheduler },
  { "data", data_keys, "DataConfig", check_data },
  { "eval", eval_keys, "EvalConfig", check_eval },
  { "distributed", distributed_keys, "DistributedConfig", check_distributed },
  { "checkpoint", checkpoint_keys, "CheckpointConfig", check_checkpoint },
  { "metrics", metrics_keys, "MetricsConfig", check_metrics },
  { "profiling", profiling_keys, "ProfilingConfig", check_profiling },
}

-- Returns all sections by name. Ends the script if one of them is invalid.
return function(d, other_keys)
  local known = dialect.copy(other_keys)
  for _, row in ipairs(sections) do known[row[1]] = true end
  d:known_keys(d.config, known, "", "JobConfig")
  local job = {}
  for _, row in ipairs(sections) do
    local before = d.n_errors
    local section = d:section(row[1], row[2], row[3])
    if d.n_errors == before then row[4](d, section) end
    job[row[1]] = section
  end
  d:stop()
  return job
end
