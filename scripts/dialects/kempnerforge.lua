-- Turns KempnerForge's configuration into a plan: require "dialects.kempnerforge" { world = 8,
-- model = {...}, distributed = {...}, train = {...}, ... } with the sections, keys and defaults of
-- its TOML files, and its checks. KempnerForge accepts some configurations and then computes them
-- wrongly. These are refused or corrected; with as = "original", KempnerForge's own result is
-- planned. world: the number of devices; or give cluster = require "clusters.hgx_h200" { ... }
-- instead.
local dialect = require "tandem.dialect"
local read_sections = require "dialects.kempnerforge_sections"

local vlm = require "dialects.kempnerforge_vlm"

local SYSTEM = "KempnerForge"
local other_keys = { world = true, cluster = true, name = true, as = true, plugins = true }
for _, key in ipairs(vlm.keys) do other_keys[key] = true end

-- ---- KempnerForge's own checks of the whole job, in its own order

local function product_of(c)
  return c.dp_replicate * c.tp * c.pp * c.cp * c.ep
end

-- Returns the size of dp_shard, or nil if the product of the axes is not the number of devices
-- (world).
local function check_world(d, c, world)
  local other = product_of(c)
  if c.dp_shard == -1 then
    if world % other == 0 then return world // other end
    d:error("mesh-product", "distributed.dp_shard",
      ("world_size (%d) not divisible by dp_replicate*tp*pp*cp*ep (%d)"):format(world, other),
      ("the product of the axes may be %s"):format(dialect.divisors(world, 64)))
    return nil
  end
  if c.dp_shard * other == world then return c.dp_shard end
  d:error("mesh-product", "distributed",
    ("Parallelism dimensions (%d x %d x %d x %d x %d x %d = %d) do not match world_size (%d)"):format(
      c.dp_replicate, c.dp_shard, c.tp, c.pp, c.cp, c.ep, c.dp_shard * other, world),
    world % other == 0 and ("dp_shard = %d would fit"):format(world // other) or nil)
  return nil
end

local function is_moe(m) return m.num_experts > 0 end
-- Returns true if any layer keeps a plain MLP.
local function has_dense(m)
  return not is_moe(m) or m.moe_frequency > 1 or m.n_layers < m.moe_frequency
end

-- Returns the width of an MLP. The default is 256 * ceil(int(4 * dim * 2/3 * multiplier) / 256).
local function hidden_of(m)
  if m.ffn_hidden_dim then return m.ffn_hidden_dim end
  local raw = math.tointeger(math.floor(4 * m.dim * (2 / 3) * m.ffn_dim_multiplier))
  return 256 * ((raw + 255) // 256)
end

-- Returns true if the activations between linears are split along the sequence.
local function splits_sequence(c, m) return c.pp == 1 and not m.tie_embeddings and not is_moe(m) end

-- Returns the number of ranks that the other axes leave to this axis and dp_shard together. The
-- size of the axis must divide this number.
local function left_for(c, axis, world)
  local other = product_of(c) // c[axis]
  return world % other == 0 and world // other or world
end

-- Checks each size that tp splits. A hint names values that fit all of these sizes and the number
-- of devices.
local function check_tp(d, c, m, t, world)
  local sizes = { { "divides-heads", "n_heads", m.n_heads } }
  if m.n_kv_heads ~= m.n_heads then sizes[2] = { "divides-heads", "n_kv_heads", m.n_kv_heads } end
  if has_dense(m) then
    local named = m.ffn_hidden_dim and "ffn_hidden_dim" or "the FFN size of dim and ffn_dim_multiplier"
    sizes[#sizes + 1] = { "divides-features", named, hidden_of(m) }
  end
  if splits_sequence(c, m) then sizes[#sizes + 1] = { "divides-seq", "train.seq_len", t.seq_len } end
  local common = left_for(c, "tp", world)
  for _, size in ipairs(sizes) do common = dialect.common(common, size[3]) end
  for _, size in ipairs(sizes) do
    if size[3] % c.tp ~= 0 then
      d:error(size[1], "distributed.tp", ("%s (%d) must be divisible by tp (%d)"):format(size[2], size[3], c.tp),
        ("%stp may be %s"):format(size[1] ~= "divides-seq" and "" or ("seq_len may be %d or %d; "):format(
          size[3] // c.tp * c.tp, (size[3] // c.tp + 1) * c.tp), dialect.divisors(common, 64)))
    end
  end
end

local function check_job(d, job)
  local c, m, t = job.distributed, job.model, job.train
  local shard = check_world(d, c, job.world)
  if t.seq_len > m.max_seq_len then
    d:error("seq-exceeds-model", "train.seq_len", ("train.seq_len (%d) exceeds model.max_seq_len (%d)"):format(
      t.seq_len, m.max_seq_len))
  end
  if m.tie_embeddings and c.pp > 1 then
    d:error("tied-across-stages", "model.tie_embeddings", ("Tied embeddings are not supported with pipeline "
      .. "parallelism (pp = %d): embedding and head lie on different stages"):format(c.pp),
      "tie_embeddings = false, or pp = 1")
  end
  if job.eval.enabled and job.eval.dataset_path == "" and job.eval.hf_dataset_name == "" then
    d:error("eval-without-data", "eval.enabled", "eval.enabled is true but no eval data source is configured",
      "set eval.dataset_path or eval.hf_dataset_name")
  end
  if c.tp > 1 then check_tp(d, c, m, t, job.world) end
  if c.pp > m.n_layers then
    d:error("pp-layers", "distributed.pp", ("pp (%d) is more than n_layers (%d): a stage would have no layer"):format(
      c.pp, m.n_layers), ("pp may be 1 to %d"):format(m.n_layers))
  end
  if t.mixed_precision == "fp8" and c.tp > 1 then
    d:error("float8-with-tp", "train.mixed_precision", ("FP8 + Tensor Parallelism (tp = %d) is not supported: "
      .. "the float8 gather of FSDP does not work with weights that tp splits"):format(c.tp),
      "fp8 with FSDP only, or tp with bf16")
  end
  if c.pp > 1 and job.data.pack_sequences then
    d:error("packing-with-pp", "data.pack_sequences", ("Sequence packing + Pipeline Parallelism (pp = %d): stages "
      .. "do not receive the ends of documents"):format(c.pp), "pack_sequences = false, or pp = 1")
  end
  if c.pp > 1 and c.pp_schedule == "interleaved_1f1b" then
    d:error("pp-interleaved", "distributed.pp_schedule", ("pp_schedule = interleaved_1f1b needs a list of stages, "
      .. "and each of the %d ranks has one stage"):format(c.pp), "pp_schedule = \"1f1b\" or \"gpipe\"")
  end
  local is_moe = m.num_experts > 0
  if is_moe and c.pp > 1 then
    d:error("moe-with-pp", "model.num_experts", ("MoE (num_experts = %d) + Pipeline Parallelism (pp = %d) is "
      .. "not supported: routing depends on the data"):format(m.num_experts, c.pp), "use FSDP, TP or EP")
  end
  if c.ep > 1 and not is_moe then
    d:error("ep-without-experts", "distributed.ep", ("ep > 1 requires an MoE model: ep = %d, num_experts = %d")
      :format(c.ep, m.num_experts))
  elseif c.ep > 1 and m.num_experts % c.ep ~= 0 then
    d:error("divides-experts", "distributed.ep", ("num_experts (%d) must be divisible by ep (%d)"):format(
      m.num_experts, c.ep), ("ep may be %s"):format(dialect.divisors(dialect.common(m.num_experts,
      left_for(c, "ep", job.world)), 64)))
  end
  return shard
end

-- ---- mistakes for which KempnerForge has no check, and behaviour that differs from its documents

-- Changes `mesh` to the mesh that KempnerForge makes. KempnerForge counts cp as a factor of the
-- number of devices, but its mesh has no such axis. known: true if the size of dp_shard is known.
local function check_unimplemented(d, c, world, mesh, known)
  if c.cp > 1 then
    local covered = math.max(world // c.cp, 1)
    d:mistake("degree-ignored", "distributed.cp", ("cp = %d is counted in the world of %d ranks, but no code "
      .. "implements it: the mesh would cover %d of them"):format(c.cp, world, covered), "cp = 1")
    if covered == 1 then mesh.dp_shard = world end  -- without any axis in the mesh, FSDP shards over all ranks
  end
  if known and c.dp_replicate > 1 and mesh.dp_shard == 1 then
    local shards = d:mistake("replicate-shards", "distributed.dp_replicate", ("dp_replicate = %d without dp_shard "
      .. "is not replicated: fully_shard shards over the only data axis"):format(c.dp_replicate),
      ("dp_shard = %d plans the same shards; replication also needs dp_shard > 1"):format(c.dp_replicate))
    if shards then mesh.dp_shard, mesh.dp_replicate = c.dp_replicate, 1 end
  end
end

local function findings(d, c, mesh)
  if not d.original then return end
  if c.tp > 1 then
    d:note("norms-not-initialised", "distributed.tp", "under tp the model is made on the meta device, and only "
      .. "tensors of two dimensions and more are initialised again: norm weights start at zero, and the loss "
      .. "at exactly ln(vocabulary)")
  end
  if mesh.dp_replicate > 1 and mesh.dp_shard > 1 then
    d:note("data-rank-unknown", "distributed.dp_replicate", ("hybrid sharding (%d x %d): the sampler asks a mesh of "
      .. "two axes for one rank, which is an error"):format(mesh.dp_replicate, mesh.dp_shard))
  end
  if c.pp > 1 then
    d:note("clip-per-stage", "distributed.pp", "each pipeline stage clips by the norm of its own gradients; the "
      .. "plan's norm is summed over the stages")
    d:note("stage-crash", "distributed.pp", "with FSDP, KempnerForge reads an attribute that the stage's module "
      .. "lacks: the run ends before its first step")
  end
end

-- ---- the plan

local function expert_hidden_of(m)
  return math.max(16, 16 * math.tointeger(math.floor(hidden_of(m) * m.moe_expert_ffn_multiplier / 16 + .5)))
end

-- Returns tp{} with KempnerForge's styles. The embedding is not split. Without sequence
-- parallelism, the head is not split, either.
local function tp_pass(m, sequence)
  local block = { ["attention.wq"] = "colwise", ["attention.wk"] = "colwise", ["attention.wv"] = "colwise",
    ["attention.wo"] = "rowwise" }
  if has_dense(m) then -- a block of experts has no entry for its MLP, so every rank of tp computes all of it
    block["mlp.up_proj"], block["mlp.down_proj"] = "colwise", "rowwise"
    if m.activation == "silu" then block["mlp.gate_proj"] = "colwise" end
  end
  local plan = {}
  if sequence then
    block.attention_norm, block.mlp_norm = "sequence_parallel", "sequence_parallel"
    plan.norm, plan.output_head = "sequence_parallel", "colwise_rep"
  end
  for path, style in pairs(block) do plan["layers.*." .. path] = style end
  return tp { sequence = sequence, loss_parallel = false, share_gathers = false, keep_gathered = true,
    plan = plan }
end

-- Returns the passes in the order of KempnerForge's builder: stages, TP, Float8, AC, FSDP,
-- materialise, compile. (Under tp, the model is built on the meta device, so it is materialised.)
local function passes(job, mesh)
  local c, m, t = job.distributed, job.model, job.train
  local list = {}
  if c.pp > 1 then list[#list + 1] = pp { schedule = c.pp_schedule } end
  if c.tp > 1 then
    list[#list + 1] = meta {}
    list[#list + 1] = tp_pass(m, splits_sequence(c, m))
  end
  if c.ep > 1 then list[#list + 1] = ep {} end
  if t.mixed_precision == "fp8" then -- all linears, also the head; by default, weights are gathered in 8 bits
    list[#list + 1] = float8 { recipe = "tensorwise", head = true, fsdp_gather = mesh.dp_shard > 1 }
  end
  local crosses = job.vlm and job.vlm.arch == "cross_attention"
  if t.activation_checkpointing == "selective" and crosses then -- it recomputes only modules of its class Attention, and attention to images has another class
    list[#list + 1] = ac { modules = { "layers.*.attention" } }
  elseif t.activation_checkpointing ~= "none" then
    list[#list + 1] = ac { mode = t.activation_checkpointing }
  end
  if job.frozen and #job.frozen > 0 then list[#list + 1] = freeze { modules = job.frozen } end
  -- Attention and experts are separate units. The root unit has all norms. FSDP uses only dp_shard.
  if mesh.ep > 1 then
    list[#list + 1] = fsdp2 { reshard_root = true, defer_grad_sync = true, over_ep = false,
      units = crosses and { "layers.*.attention", "layers.*.mlp", "cross_attention_layers.*" }
        or { "layers.*.attention", "layers.*.mlp" } }
  elseif mesh.dp_shard > 1 then
    -- Under pp, the schedule keeps gathered weights until the last backward pass.
    list[#list + 1] = c.pp > 1 and fsdp2 { keep_gathered = true }
      or fsdp2 { reshard_after_forward = true, reshard_root = true, defer_grad_sync = true }
  end
  if c.tp > 1 then list[#list + 1] = materialize {} end
  if t.compile_model then list[#list + 1] = compile "model" end
  return list
end

local stored = { bf16 = "bf16", fp16 = "fp16", fp32 = "fp32", fp8 = "bf16" } -- the type of stored weights; with fp8, it is bf16
local function plan_of(job, d)
  local c, m, t, o, s = job.distributed, job.model, job.train, job.optimizer, job.scheduler
  local mesh = job.mesh
  local dtype = stored[t.mixed_precision]
  local config = dialect.copy(m)
  config.hidden, config.head_dim = hidden_of(m), false
  config.expert_hidden = expert_hidden_of(m)
  config.z_loss = t.z_loss_weight
  config.images = job.vlm and vlm.model(job.vlm, m) or false
  config.norm_weights = d.original and c.tp > 1 and 0 or 1
  local data = mesh.dp_replicate * mesh.dp_shard * mesh.ep
  local constant = s.name == "constant" or s.name == "none"
  local own = {
    name = d.config.name,
    original = d.original and SYSTEM or nil,
    model = require "models.kempnerforge" (config),
    cluster = d.config.cluster,
    -- KempnerForge divides the loss of each micro-batch by the number of its labelled tokens, and
    -- then by the number of micro-batches.
    batch = { global = t.batch_size * t.grad_accum_steps * data, micro = t.batch_size, seq = job.vlm and job.vlm.max_text_len or t.seq_len,
      denominator = d.original and "microbatch_mean" or nil },
    mesh = mesh,
    parallel = passes(job, mesh),
    precision = { param = dtype, compute = dtype, reduce = "fp32" },
    optimizer = adamw { lr = o.lr, beta1 = o.betas[1], beta2 = o.betas[2], eps = o.eps,
      weight_decay = o.weight_decay, clip_norm = t.grad_clip_norm,
      warmup_steps = s.name == "none" and 0 or s.warmup_steps,
      -- a warm-up may be longer than the run, which then ends before the rate has its full value
      total_steps = constant and 0 or s.decay_steps and s.warmup_steps + s.decay_steps
        or math.max(t.max_steps, s.warmup_steps),
      min_lr_ratio = s.min_lr_ratio },
    seed = t.seed, steps = t.max_steps,
  }
  return plan(own)
end

-- Refuses options of mixtures of experts that Tandem lacks or computes differently.
local function refuse_experts(d, job)
  local m = job.model
  local function refuse(key, text) d:error("dialect-unsupported", "model." .. key, text) end
  if m.moe_router ~= "softmax_topk" then
    refuse("moe_router", ("moe_router = '%s' is not supported: choose softmax_topk"):format(m.moe_router))
  end
  if m.activation ~= "silu" then refuse("activation", "experts of " .. m.activation .. " are not supported: "
    .. "Tandem has SwiGLU experts") end
  if m.moe_gradient_scale then
    refuse("moe_gradient_scale", "moe_gradient_scale is not supported: gradients are those of the unscaled loss")
  end
  if m.moe_sequence_aux_loss_weight > 0 then
    d:warn("not-applied", "model.moe_sequence_aux_loss_weight",
      "only the router sigmoid_topk reads moe_sequence_aux_loss_weight; softmax_topk reads moe_aux_loss_weight")
  end
  if m.moe_aux_loss_weight > 0 then
    d:note("dialect-differs", "model.num_experts", "the auxiliary loss is computed for each sequence, not "
      .. "for the tokens of a rank, so it does not depend on the number of ranks")
  end
  if m.moe_capacity_factor > 0 then
    d:note("dialect-differs", "model.moe_capacity_factor", "an expert's capacity counts all choices of a sequence "
      .. "together; KempnerForge counts the tokens of a rank, separately for each choice")
  end
  if job.distributed.ep > 1 then
    if d.original then
      d:error("dialect-unsupported", "distributed.ep", "as = \"original\" with ep > 1: Tandem cannot plan ep "
        .. "ranks that read the same samples and sum the gradients of experts ep times")
    else
      d:note("dialect-differs", "distributed.ep", ("ranks of ep read samples of their own: a step has %d times the "
        .. "sequences (KempnerForge gives them the same samples, repeats all other computation ep times, and sums "
          .. "the gradients of experts ep times)"):format(job.distributed.ep))
    end
  end
end

local function refuse_later(d, job)
  local m, t, o, s = job.model, job.train, job.optimizer, job.scheduler
  if job.vlm then vlm.refuse(d, job.vlm, job) end
  if job.checkpoint.load_path and job.checkpoint.load_path ~= "" then -- for KempnerForge, "" means no path
    d:error("dialect-unsupported", "checkpoint.load_path", ("load_path = '%s': Tandem does not read KempnerForge's "
      .. "checkpoints, and the run would begin with new weights"):format(job.checkpoint.load_path),
      "leave load_path out; `tandem run --load DIR` continues from a checkpoint of its own")
  end
  if is_moe(m) then refuse_experts(d, job) end
  if o.name ~= "adamw" then
    d:error("dialect-unsupported", "optimizer.name", ("optimizer '%s' is not supported%s"):format(o.name, o.name == "muon"
      and ": KempnerForge orthogonalises each rank's shard by itself, so its result depends on the number of ranks" or ""),
      "name = \"adamw\"")
  end
  if s.name == "linear" or s.name == "wsd" or s.name == "rex" then
    d:error("dialect-unsupported", "scheduler.name", ("schedule '%s' is not supported: choose cosine or "
      .. "constant"):format(s.name))
  end
  if job.data.pack_sequences then
    d:error("dialect-unsupported", "data.pack_sequences", "pack_sequences is not supported: attention covers whole sequences")
  end
  if m.activation == "relu" then
    d:error("dialect-unsupported", "model.activation", "activation relu is not supported: choose silu or gelu")
  end
  if t.loss_fn ~= "cross_entropy" then
    d:error("dialect-unsupported", "train.loss_fn", ("loss_fn = '%s' is not supported: the plan would keep all "
      .. "logits anyway"):format(
      t.loss_fn), "cross_entropy computes the same loss; tile {} in your own plan splits logits and head into pieces")
  end
end

local function world_of(d)
  local world, cluster = d.config.world, d.config.cluster
  if world == nil and type(cluster) == "table" then
    world = (cluster.nodes or 1) * (cluster.devices_per_node or 0)
  end
  if math.type(world) == "integer" and world >= 1 then return world end
  d:error(world == nil and "missing-key" or "out-of-range", "world",
    "world must be the number of devices: world = 8, or a cluster")
  return nil
end

return dialect.wrap(function(config)
  local d = dialect.new(SYSTEM, config)
  local of_images = vlm.read(d, config)
  local world = world_of(d)
  local job = read_sections(d, other_keys)
  job.world, job.vlm = world, of_images
  local shard = check_job(d, job)
  if job.vlm then vlm.check(d, job.vlm, job) end
  if d.n_errors == 0 then refuse_later(d, job) end
  local c = job.distributed
  local mesh = { pp = c.pp, dp_replicate = c.dp_replicate, dp_shard = shard or 1, ep = c.ep, tp = c.tp }
  check_unimplemented(d, c, world, mesh, shard ~= nil)
  job.mesh = mesh
  if job.vlm and d.n_errors == 0 then job.frozen = vlm.frozen(d, job.vlm) end
  d:stop()
  findings(d, c, mesh)
  return plan_of(job, d)
end)
