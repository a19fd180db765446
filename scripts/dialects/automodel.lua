-- Turns a recipe of NeMo Automodel into a plan: return require "dialects.automodel" { distributed =
-- { tp_size = 2 }, ... }. Names, defaults and checks are Automodel's. All mistakes are reported at
-- once. A mistake that Automodel silently accepts is refused; with as = "original" it becomes a
-- finding. Keys of vision models are checked, and then refused.
local dialect = require "tandem.dialect"
local values = require "tandem.dialect_values"
local pipeline = require "dialects.automodel_pp"
local tensor = require "dialects.automodel_tp"
local experts = require "dialects.automodel_experts"
local options_of = require "dialects.automodel_options"
local hybrid = require "dialects.automodel_hybrid"
local rope = require "dialects.automodel_rope"

local top_keys = { as = true, name = true, seed = true, steps = true, data = true, cluster = true, model = true,
  hf = true, distributed = true, step_scheduler = true, seq_length = true, optimizer = true,
  lr_scheduler = true, clip_grad_norm = true, fp8 = true, world_size = true, api = true }

local sections = { "distributed", "step_scheduler", "optimizer", "lr_scheduler", "fp8", "hf" }
local hf_keys = { class = { "text" }, num_attention_heads = { "integer" }, num_key_value_heads = { "integer" },
  num_hidden_layers = { "integer" }, tie_word_embeddings = { "boolean" }, tp_plan = { "list" },
  remote_code = { "boolean", false }, torch_dtype = { "any" },
  num_nextn_predict_layers = { "integer", 0 } }
for key, row in pairs(rope.hf_keys) do hf_keys[key] = row end

local scheduler_keys = { global_batch_size = { "integer" }, local_batch_size = { "integer", 1 }, max_steps = { "integer" },
  ckpt_every_steps = { "integer" }, val_every_steps = { "integer" }, num_epochs = { "integer" }, gc_every_steps = { "integer" } }

-- Parts of class names. A class whose name contains one of them is not a plain text decoder.
local other_kinds = {
  { "Bidirectional", "an encoder" }, { "ForMaskedLM", "an encoder" }, { "BertModel", "an encoder" },
  { "ForSequenceClassification", "a classifier" }, { "ForTokenClassification", "a classifier" },
  { "Omni", "a model of images, sound and text" }, { "Multimodal", "a model of images and text" },
  { "Audio", "a model of sound" }, { "Whisper", "a model of sound" },
  { "Diffusion", "a model that removes noise" },
  { "ForConditionalGeneration", "an encoder and a decoder, or a model of images and text" },
  { "Seq2Seq", "an encoder and a decoder" }, { "EncoderDecoder", "an encoder and a decoder" },
  { "T5", "an encoder and a decoder" }, { "BartModel", "an encoder and a decoder" }, { "Pegasus", "an encoder and a decoder" },
  { "ForImageTextToText", "a model of images and text" }, { "VL", "a model of images and text" },
  { "Llava", "a model of images and text" }, { "Vision", "a model of images" }, { "CLIP", "a model of images and text" },
  { "Mamba", "a state-space model" }, { "Jamba", "a hybrid of attention and state spaces" },
  { "NemotronH", "a hybrid of attention and state spaces" }, { "FalconH1", "a hybrid of attention and state spaces" },
  { "Bamba", "a hybrid of attention and state spaces" }, { "Zamba", "a hybrid of attention and state spaces" },
  { "Hybrid", "a hybrid of attention and state spaces" }, { "Qwen3Next", "a hybrid of attention and linear attention" },
  { "Qwen3_5", "a hybrid of attention and linear attention" }, { "KimiLinear", "a hybrid of attention and linear attention" },
  { "Lfm2", "a hybrid of attention and convolutions" },
  { "RWKV", "a recurrent model" }, { "Rwkv", "a recurrent model" }, { "Recurrent", "a recurrent model" },
}

-- Checks the class of the recipe's model. For a model of the library, it must be a class of that
-- model. Otherwise, a class that is not a decoder is refused by name. A class that Tandem does not
-- know is planned as the recipe's `model`, and the report says so.
local function check_class(d, class, family)
  local own = tensor.classes(d.config.model)
  if not class or (own and own[class]) then return end
  for _, kind in ipairs(other_kinds) do
    if class:find(kind[1], 1, true) then
      d:error("model-class", "hf.class", ("hf.class = '%s' is %s, and the key model has no model of this "
        .. "class"):format(class, kind[2]),
        "model may be models.t5 (an encoder and a decoder), models.llava or models.qwen2_vl (images), "
          .. "models.mamba2 or models.nemotron_h (state spaces), each with its own class; or name the class of a decoder")
      return
    end
  end
  if own and tensor.knows(class) then
    d:error("model-class", "hf.class", ("hf.class = '%s' is not a class of models.%s"):format(class,
      tensor.library(d.config.model)), "leave hf.class out, or name the model of that class")
  elseif not tensor.knows(class) then
    d:note("model-class", "hf.class", ("hf.class = '%s' is not known: it is planned as the decoder %s, and split "
      .. "as Automodel splits a class that has no plan"):format(class, family and family.class or "in model"))
  end
end

-- Returns a number of the model's configuration, or nil if it has none, or if a user's model uses
-- the name for something else.
local function number_of(config, key) return math.type(config[key]) == "integer" and config[key] or nil end

-- Checks that no number of heads is negative. It may be 0 (not known), as in Automodel.
local function check_heads(d, hf)
  for _, key in ipairs { "num_attention_heads", "num_key_value_heads" } do
    if hf[key] and hf[key] < 0 then
      d:error("out-of-range", "hf." .. key, ("hf.%s = %d must not be negative"):format(key, hf[key]))
      hf[key] = nil
    end
  end
end

-- Returns the section hf: the keys of Hugging Face's configuration. A model of the library supplies missing keys.
local function about_model(d, family)
  local hf = d:section("hf", hf_keys)
  local config = type(d.config.model) == "table" and rawget(d.config.model, "config")
  if type(config) ~= "table" then config = {} end
  check_heads(d, hf)
  check_class(d, hf.class, family)
  local library = tensor.library(d.config.model)
  local always_tied = library == "gemma" or library == "gpt2"
  hf.class = hf.class or (family and family.class) or library and "models." .. library or "a model of your own"
  hf.num_attention_heads = hf.num_attention_heads or number_of(config, "heads")
  hf.num_key_value_heads = hf.num_key_value_heads or number_of(config, "kv_heads")
    or hf.num_attention_heads
  hf.num_hidden_layers = hf.num_hidden_layers or number_of(config, "layers")
  if hf.tie_word_embeddings == nil then hf.tie_word_embeddings = (config.tied or always_tied) and true or false end
  return hf
end

-- Returns the size of a mesh axis. A size that is missing, null or not positive takes its default,
-- as in Automodel.
local function size_of(d, given, key, default)
  local value = given[key]
  if value == nil or value == false then return default end
  if math.type(value) ~= "integer" and not (type(value) == "number" and math.tointeger(value)) then
    d:error("wrong-type", "distributed." .. key, ("%s must be an integer, not %s"):format(key, tostring(value)))
    return default
  end
  return value > 0 and math.tointeger(value) or default
end

-- Removes keys with the value none or None. Automodel's loader reads these words as null, so such a
-- key counts as left out.
local function drop_null(t)
  local null = {}
  for key, value in pairs(t) do
    if value == "none" or value == "None" then null[#null + 1] = key
    elseif type(value) == "table" then drop_null(value) end
  end
  for _, key in ipairs(null) do t[key] = nil end
end

-- Multi-token prediction: Automodel does not support it with cp and pp together, and Tandem does
-- not support it at all.
local function check_further_tokens(d, s, hf)
  if hf.num_nextn_predict_layers <= 0 then return end
  if s.cp > 1 and s.pp > 1 then
    d:error("dialect-unsupported", "hf.num_nextn_predict_layers", ("multi-token prediction (%d modules) with cp_size = %d and "
      .. "pp_size = %d is not implemented in Automodel"):format(hf.num_nextn_predict_layers, s.cp, s.pp), "num_nextn_predict_layers = 0")
  else
    d:error("dialect-unsupported", "hf.num_nextn_predict_layers",
      "multi-token prediction is not supported", "num_nextn_predict_layers = 0")
  end
end

local function read_sizes(d, given)
  return { tp = size_of(d, given, "tp_size", 1), pp = size_of(d, given, "pp_size", 1),
    cp = size_of(d, given, "cp_size", 1), ep = size_of(d, given, "ep_size", 1),
    dp = size_of(d, given, "dp_size", nil), replicate = size_of(d, given, "dp_replicate_size", 1) }
end

-- Returns a hint for a mesh whose product is not the number of devices (world). It names a tp_size
-- that also divides the heads.
local function fitting(s, hf, world)
  local others = s.tp * s.cp * s.pp
  local rest = world // (s.cp * s.pp)
  if rest * s.cp * s.pp ~= world then return "their product may be " .. dialect.divisors(world) end
  local sizes, tp = tensor.sizes(s, hf)
  if tp ~= s.tp then
    return ("tp_size may be %s; tp_size = %d leaves dp_size = %d"):format(sizes, tp, rest // tp)
  end
  return ("dp_size = %d, or leave it out"):format(world // others)
end

-- Checks the sizes of the mesh against the number of devices (world), and sets s.dp if the recipe
-- leaves it out. Returns false if there is no such size.
local function check_data(d, s, hf, world)
  local others = s.tp * s.cp * s.pp
  if not s.dp then
    if world % others ~= 0 then
      d:error("mesh-product", "distributed",
        ("world_size (%d) must be divisible by (tp_size * cp_size * pp_size) (%d * %d * %d = %d)"):format(world, s.tp,
          s.cp, s.pp, others), fitting(s, hf, world))
      return false
    end
    s.dp = world // others
  elseif s.dp * others ~= world then
    d:error("mesh-product", "distributed.dp_size",
      ("dp_size * tp_size * cp_size * pp_size = %d * %d * %d * %d = %d, but world_size is %d"):format(s.dp, s.tp,
        s.cp, s.pp, s.dp * others, world), fitting(s, hf, world))
  end
  if s.replicate > 1 and s.dp % s.replicate ~= 0 then
    d:error("replicate-divides", "distributed.dp_replicate_size",
      ("dp_size must be a multiple of dp_replicate_size: %d and %d"):format(s.dp, s.replicate),
      "dp_replicate_size may be " .. dialect.divisors(s.dp, s.dp - 1))
  elseif s.replicate > 1 and s.replicate >= s.dp then
    d:error("replicate-whole", "distributed.dp_replicate_size",
      ("dp_replicate_size=%d must be less than dp_size=%d since DDP usecase is not supported by FSDP2"):format(
        s.replicate, s.dp), "strategy = \"ddp\", or a smaller dp_replicate_size")
  end
  local non_pp = s.dp * s.cp * s.tp
  if s.ep > 1 and non_pp % s.ep ~= 0 then
    d:error("ep-divides", "distributed.ep_size",
      ("non_pp_size=%d must be a multiple of ep_size=%d"):format(non_pp, s.ep), experts.sizes(d, s))
  end
  return true
end

-- Refuses the axes that a strategy does not support.
local function check_strategy(d, s, strategy)
  if s.replicate > 1 and strategy ~= "fsdp2" then
    d:error("replicate-strategy", "distributed.dp_replicate_size",
      ("dp_replicate_size = %d is only supported with FSDP2Config, not %s"):format(s.replicate, strategy),
      "strategy = \"fsdp2\"")
  end
  local refused = { ddp = { tp = "tensor", pp = "pipeline", cp = "context", ep = "expert" },
    megatron_fsdp = { pp = "pipeline", ep = "expert" }, fsdp2 = {} }
  for _, axis in ipairs { "tp", "pp", "cp", "ep" } do
    local what = refused[strategy][axis]
    if what and s[axis] > 1 then
      d:error("strategy-axes", ("distributed.%s_size"):format(axis),
        ("%s does not support %s parallelism (%s_size = %d)"):format(strategy, what, axis, s[axis]),
        "strategy = \"fsdp2\" supports it")
    end
  end
end

-- Checks the sections of options of an axis with size 1. Automodel refuses such a section in a
-- configuration made in Python, but ignores it in a recipe.
local function check_blocks(d, s, given)
  for _, row in ipairs { { "pipeline", "pp", "pipeline_config" }, { "moe", "ep", "moe_parallel_config" } } do
    local key, axis, config = row[1], row[2], row[3]
    if given[key] ~= nil and s[axis] <= 1 then
      if d.config.api then
        d:error("block-without-axis", "distributed." .. key, ("%s requires %s_size > 1"):format(config, axis),
          ("%s_size = 2, or leave %s out"):format(axis, key))
      else
        d:warn("not-applied", "distributed." .. key,
          ("distributed.%s is set but %s_size = %d: it is ignored"):format(key, axis, s[axis]))
      end
    end
  end
  if s.pp > 1 and given.pipeline == nil and not d.config.api then
    d:error("missing-key", "distributed.pp_size",
      ("pp_size=%d (> 1) enables pipeline parallelism but no distributed.pipeline block was provided"):format(s.pp),
      "distributed = { pipeline = { pp_schedule = \"1f1b\" } }, or pipeline = {} for its defaults")
  end
end

-- Returns the size of a factor of cp (nil: not given), and its key: for "ring", cp_ring_degree or
-- cp_ring_size. what: "ring" or "ulysses".
local function factor_of(d, given, what)
  local key = given["cp_" .. what .. "_degree"] ~= nil and "cp_" .. what .. "_degree" or "cp_" .. what .. "_size"
  local value = given[key]
  if value == nil or (math.type(value) == "integer" and value >= 1) then return value, key end
  d:error("cp-factors", "distributed." .. key, ("%s = %s is not a number of "
    .. "ranks"):format(key, tostring(value)), "a positive integer")
end

-- Returns the number of ranks that exchange tokens for heads (Ulysses). ring x ulysses = cp: if the
-- recipe gives one factor, the other follows. Automodel refuses to train with a ring, because the
-- backward pass of its ring is wrong.
local function ulysses_ranks(d, s, given)
  local ring, ring_key = factor_of(d, given, "ring")
  local ulysses, ulysses_key = factor_of(d, given, "ulysses")
  if d.n_errors > 0 then return 1 end
  if ring and ulysses then
    if ring * ulysses ~= s.cp then
      d:error("cp-factors", "distributed.cp_size",
        ("ring %d x ulysses %d = %d must equal cp_size = %d"):format(ring, ulysses, ring * ulysses, s.cp))
    end
  elseif s.cp % (ring or ulysses or 1) ~= 0 then
    d:error("cp-factors", "distributed.cp_size", ("%s = %d must divide cp_size = %d"):format(ring and ring_key or
      ulysses_key, ring or ulysses, s.cp))
  end
  if d.n_errors > 0 then return 1 end
  local heads = ulysses or ring and s.cp // ring or 1
  if s.cp > 1 and (ring or ulysses) and heads < s.cp then
    d:error("axis-unsupported", "distributed." .. (ring and ring_key or ulysses_key),
      ("a ring of %d and Ulysses of %d: Automodel supports no ring in training"):format(s.cp // heads, heads),
      ("%s = %d; a plan without the dialect takes cp { mode = \"ring\"%s }"):format(ulysses_key, s.cp,
        heads > 1 and (", all_to_all = %d"):format(heads) or ""))
  elseif s.cp > 1 and heads == s.cp and s.tp > 1 then
    d:error("axis-unsupported", "distributed." .. ulysses_key, ("%s = %d with tp_size = %d: both "
      .. "axes split the heads"):format(ulysses_key, heads, s.tp), ulysses_key .. " = 1, or tp_size = 1")
  end
  return heads
end

-- Returns cp{}, or nil if cp is 1. PyTorch's context_parallel gathers keys and values
-- (rotate_method is "allgather" by default). It gives each rank an early and a late part of the
-- sequence, so that all ranks have the same work.
local function context_of(s, heads)
  if s.cp == 1 then return nil end
  return cp { mode = heads == s.cp and "all_to_all" or "all_gather" }
end

-- Returns the plan's batch and its number of steps, or nil after an error. A pipeline cuts the
-- local batch into micro-batches of pp_micro sequences. stages: the number of virtual stages of all
-- ranks together.
local function batch_of(d, s, pp_micro, stages)
  local b = d:section("step_scheduler", scheduler_keys)
  local micro, each = b.local_batch_size, b.local_batch_size * s.dp
  if b.ckpt_every_steps then
    d:note("dialect-differs", "step_scheduler.ckpt_every_steps", ("the plan saves no checkpoints: use "
      .. "`tandem run --save DIR --save-every %d`"):format(b.ckpt_every_steps))
  end
  if micro < 1 then
    d:error("out-of-range", "step_scheduler.local_batch_size", ("local_batch_size = %d must be positive"):format(micro))
    return nil
  end
  local total = b.global_batch_size or each
  if total < 1 or total % each ~= 0 then
    d:error("divides-batch", "step_scheduler.global_batch_size",
      ("global_batch_size (%d) must be divisible by local_batch_size * dp_size (%d * %d)"):format(total, micro, s.dp),
      ("%d or %d"):format(math.max(1, total // each) * each, (total // each + 1) * each))
    return nil
  end
  local runs = total // each
  if s.pp > 1 then
    local n = micro // pp_micro
    if runs > 1 then
      d:note("dialect-differs", "step_scheduler.global_batch_size",
        ("Automodel accumulates gradients over %d runs of the pipeline, which drains between them; Tandem plans "
          .. "one run of all %d micro-batches"):format(runs, runs * n))
    end
    if n < stages and runs * n >= stages then
      d:warn("pp-bubble", "step_scheduler.local_batch_size",
        ("Number of microbatches (%d) is less than the total number of stages (%d)"):format(n, stages))
    end
  end
  if type(d.config.seq_length) ~= "number" then
    d:error("missing-key", "seq_length", "seq_length is missing: it is the number of tokens in a "
      .. "sequence", "seq_length = 4096")
  end
  return { global = total, micro = s.pp > 1 and pp_micro or micro, seq = d.config.seq_length }, b.max_steps
end

-- Returns the options of pp{} and the number of sequences in a micro-batch of the pipeline. Returns
-- nil for both if there is no pipeline.
local function pipeline_of(d, s, hf, given)
  if s.pp <= 1 then return nil, nil end
  if hf.tie_word_embeddings then
    d:error("tied-across-stages", "distributed.pp_size",
      ("tie_word_embeddings with pp_size = %d: stages 0 and %d would each train a separate copy of the "
        .. "weight"):format(s.pp, s.pp - 1),
      "untie the head from the embedding, or pp_size = 1")
  end
  if tensor.library(d.config.model) == "t5" then
    d:error("dialect-unsupported", "distributed.pp_size", ("pp_size = %d: Automodel splits no model of an encoder and a "
      .. "decoder into stages"):format(s.pp), "pp_size = 1")
  end
  local block = values.section(d, "distributed.pipeline", given.pipeline or {}, pipeline.keys)
  local schedule = type(d.config.step_scheduler) == "table" and d.config.step_scheduler or {}
  local batch = math.tointeger(schedule.local_batch_size or 1) or 1
  return pipeline.options(d, block, s.pp, hf.num_hidden_layers, batch), block.pp_microbatch_size
end

local function mesh_of(strategy, s, shards)
  local mesh = { pp = s.pp, tp = s.tp, cp = s.cp }
  if strategy == "fsdp2" then
    mesh.dp_replicate, mesh.dp_shard = s.replicate, s.dp // s.replicate
    mesh.ep, mesh.ep_mode = s.ep, "folded"
  elseif shards then
    mesh.dp_shard = s.dp
  else
    mesh.dp_replicate = s.dp
  end
  return mesh
end

return dialect.wrap(function(config)
  local d = dialect.new("automodel", config)
  d:known_keys(config, top_keys, "", "the recipe")
  for _, name in ipairs(sections) do
    if type(config[name]) == "table" then drop_null(config[name]) end
  end
  local given = type(config.distributed) == "table" and config.distributed or {}
  local strategy, options = options_of.strategy(d, given)
  local s = read_sizes(d, given)
  local family = tensor.family(config.model)
  local hf = about_model(d, family)
  local model = rope.model(d, hf, config.model)
  check_further_tokens(d, s, hf)
  hybrid.check_context(d, s, config.model)
  check_strategy(d, s, strategy)
  check_blocks(d, s, given)
  local world = values.world(d) or (s.dp or 1) * s.tp * s.cp * s.pp
  s.left = world % (s.cp * s.pp) == 0 and world // (s.cp * s.pp) or world
  s.hidden, s.experts = experts.sizes_of_model(config.model)
  if not check_data(d, s, hf, world) then s.dp = 1 end
  local heads = ulysses_ranks(d, s, given)
  options.experts = experts.options(d, s, given, options, family)
  local pp_options, pp_micro = pipeline_of(d, s, hf, given)
  local tp_options
  if s.tp > 1 and strategy ~= "ddp" then tp_options = tensor.options(d, options, hf, family, s) end
  local ac_pass = options_of.checkpointing(d, given, options, strategy, family)
  local data_pass, shards = options_of.data(d, strategy, options, s.pp)
  local precision = options_of.precision(d, strategy, options, hf)
  local batch, steps = batch_of(d, s, pp_micro or 1, pp_options and s.pp * pp_options.chunks or s.pp)
  local float8_pass = options_of.float8(d, family)
  local optimizer = options_of.optimizer(d)
  local tp_pass = tp_options and tp(tp_options)
  -- Automodel converts linears to 8 bits before it applies tp. In a plan with ep or cp, float8 must
  -- come after ep and cp, and tp before them.
  local early = s.cp > 1 or options.experts ~= nil
  d:stop()
  return plan {
    name = config.name, model = model, cluster = config.cluster, batch = batch,
    mesh = mesh_of(strategy, s, shards), precision = precision, optimizer = optimizer,
    parallel = values.passes(9, pp_options and pp(pp_options), early and tp_pass, options.experts and ep {}, context_of(s, heads),
      float8_pass, not early and tp_pass, ac_pass, data_pass, options.enable_compile and compile "block"),
    original = d.original and d.system or nil, seed = config.seed, steps = config.steps or steps, data = config.data,
  }
end)
