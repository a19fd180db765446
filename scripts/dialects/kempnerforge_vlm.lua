-- KempnerForge's models of images and text: [vlm], [vision_encoder], [adapter], [video]. Image
-- tokens precede the text. The loss counts only text tokens. The vision encoder of type "random"
-- has no parameters: it returns random tokens, the same number for each image. Other encoders and
-- architectures are refused by name.
local dialect = require "tandem.dialect"
local vlm = { keys = { "vlm", "vision_encoder", "adapter", "video" } }

local pooling = { avgpool = true, attentional_pool = true }
-- vlm_keys: the keys that all architectures have. keys_of: the further keys of each architecture. A
-- key of another architecture is reported as unknown.
local vlm_keys = {
  arch = { "word", "joint_decoder", { "joint_decoder", "cross_attention", "mot", "moma" } },
  max_text_len = { "integer", 512 }, freeze = { "list", { { module = "vision_encoder", frozen = true } } },
  freeze_schedule = { "list", {} }, module_patterns = { "list" },
}
local keys_of = {
  joint_decoder = {},
  cross_attention = { cross_attention_every_n_layers = { "integer", 4 }, cross_attention_n_heads = { "integer", 0 },
    cross_attention_n_kv_heads = { "integer", 0 } },
  mot = { mot_modalities = { "list" }, mot_image_n_heads = { "integer", 0 }, mot_image_n_kv_heads = { "integer", 0 },
    mot_warm_start_from_text = { "boolean", false }, mot_warm_start_path = { "text", "" } },
  moma = { moma_modalities = { "list" }, moma_experts_per_modality = { "list" }, moma_capacity_factor = { "number", 0.0 },
    moma_gumbel_noise = { "boolean", true } },
}
local class_of = { joint_decoder = "JointDecoderConfig", cross_attention = "CrossAttentionConfig", mot = "MoTConfig",
  moma = "MoMaConfig" }
local function with_keys(keys, more)
  local all = dialect.copy(keys)
  for key, row in pairs(more) do all[key] = row end
  return all
end

local encoder_keys = { type = { "word", "random", { "random", "siglip2", "clip" } }, path = { "text", "" },
  feature_dim = { "integer", 0 }, num_tokens = { "integer", 0 } }
local adapter_keys = { type = { "word", "mlp_2layer", { "mlp_2layer", "linear", "avgpool", "attentional_pool" } },
  hidden_dim = { "integer", 0 }, activation = { "word", "gelu", { "gelu", "silu", "relu" } }, pre_norm = { "text", "" },
  pool_window = { "integer", 2 }, pool_heads = { "integer", 16 } }

-- Returns the number of tokens that the adapter makes from `n` patches. A pooling adapter makes one
-- token from each window of a square grid.
local function tokens_of(d, adapter, n)
  if not pooling[adapter.type] or n <= 0 then return n end
  local side = math.floor(math.sqrt(n) + 0.5)
  if side * side ~= n then
    d:error("shape-mismatch", "adapter.type", ("pooling needs a square grid of patches, but num_tokens = %d is "
      .. "not a square number"):format(n))
    return n
  end
  return ((side + adapter.pool_window - 1) // adapter.pool_window) ^ 2 // 1 | 0
end

local keys_of_section = { vision_encoder = encoder_keys, adapter = adapter_keys }
local class_of_section = { vision_encoder = "VisionEncoderConfig", adapter = "AdapterConfig" }

-- Returns the sections, or nil for a model of text alone.
function vlm.read(d, config)
  if config.vlm ~= nil and config.vision_encoder == nil then
    d:error("missing-key", "vlm", "[vlm] is set but [vision_encoder] is missing: a VLM run requires one")
  end
  if config.video ~= nil and config.vlm == nil then
    d:error("missing-key", "video", "[video] is set but [vlm] is missing: video trains through the VLM wrapper")
  end
  if config.vlm == nil then -- KempnerForge then reads and checks these sections, and trains on text alone
    for _, name in ipairs { "vision_encoder", "adapter" } do
      if config[name] ~= nil then
        d:section(name, keys_of_section[name], class_of_section[name])
        d:warn("not-applied", name, ("[%s] has no effect without [vlm]: the model reads text alone"):format(name))
      end
    end
  end
  if config.vlm == nil or config.vision_encoder == nil then return nil end
  local given = type(config.vlm) == "table" and config.vlm.arch or "joint_decoder"
  local arch = keys_of[given] and given or "joint_decoder"
  local v = d:section("vlm", with_keys(vlm_keys, keys_of[arch]), class_of[arch])
  v.encoder = d:section("vision_encoder", encoder_keys, class_of_section.vision_encoder)
  v.adapter = d:section("adapter", adapter_keys, class_of_section.adapter)
  v.frames = type(config.video) == "table" and (config.video.max_frames or 16) or 1
  if v.max_text_len and v.max_text_len <= 0 then
    d:error("out-of-range", "vlm.max_text_len", "vlm.max_text_len must be positive")
  end
  return v
end

-- Returns the number of image tokens in the decoder's sequence. It is 0 if separate blocks read the
-- image.
local function residual_tokens(d, v, n)
  return v.arch == "cross_attention" and 0 or v.frames * tokens_of(d, v.adapter, n)
end

-- Returns the numbers of query heads and KV heads in the blocks that read the image. 0 query heads
-- in the configuration mean as many as in the model; 0 KV heads mean one for each query head.
local function cross_heads(v, model)
  local heads = v.cross_attention_n_heads > 0 and v.cross_attention_n_heads or model.n_heads
  return heads, v.cross_attention_n_kv_heads > 0 and v.cross_attention_n_kv_heads or heads
end

-- Checks the blocks that read images. KempnerForge itself checks only the first two sizes. With
-- another wrong size, it fails while it builds the model.
local function check_cross(d, v, model)
  if v.cross_attention_every_n_layers <= 0 then
    d:error("out-of-range", "vlm.cross_attention_every_n_layers", ("cross_attention_every_n_layers must be positive: it is %d"):format(
      v.cross_attention_every_n_layers))
    return
  end
  for _, key in ipairs { "cross_attention_n_heads", "cross_attention_n_kv_heads" } do
    if v[key] < 0 then
      d:error("out-of-range", "vlm." .. key, ("%s must be non-negative: it is %d"):format(key, v[key]), key .. " = 0 takes the model's")
      return
    end
  end
  local heads, kv_heads = cross_heads(v, model)
  if heads % kv_heads ~= 0 then
    d:error("divides-heads", "vlm.cross_attention_n_kv_heads", ("cross_attention_n_heads (%d) must be divisible by "
      .. "cross_attention_n_kv_heads (%d)"):format(heads, kv_heads), "cross_attention_n_kv_heads may be " .. dialect.divisors(heads))
  end
  if model.dim // heads < 1 then
    d:error("divides-heads", "vlm.cross_attention_n_heads", ("cross_attention_n_heads (%d) is more than dim (%d)"):format(heads, model.dim))
  end
  if v.cross_attention_every_n_layers > model.n_layers then
    d:error("unused-parameter", "vlm.cross_attention_every_n_layers", ("cross_attention_every_n_layers = %d is more than n_layers = %d: no block "
      .. "reads the image"):format(v.cross_attention_every_n_layers, model.n_layers), ("cross_attention_every_n_layers may be 1 to %d"):format(model.n_layers))
  end
end

local function check_length(d, v, key, value, n, when)
  local images = residual_tokens(d, v, n)
  if value >= images + v.max_text_len then return end
  d:error("vlm-sequence", key, ("%s (%d) insufficient for VLM%s: residual_image_tokens (%d) + vlm.max_text_len (%d) = %d"):format(
    key, value, when, images, v.max_text_len, images + v.max_text_len), ("%s = %d"):format(key, images + v.max_text_len))
end

-- KempnerForge's own checks of the whole job.
function vlm.check(d, v, job)
  local before = d.n_errors
  d:bounded(v.encoder, "vision_encoder", { "feature_dim", "num_tokens" }, "non-negative")
  d:bounded(v.adapter, "adapter", { "hidden_dim" }, "non-negative")
  d:bounded(v.adapter, "adapter", { "pool_window", "pool_heads" }, "positive")
  if d.n_errors > before then return end
  local known = v.encoder.num_tokens > 0
  if known then
    check_length(d, v, "model.max_seq_len", job.model.max_seq_len, v.encoder.num_tokens, "")
    check_length(d, v, "train.seq_len", job.train.seq_len, v.encoder.num_tokens, "")
  else -- an encoder states its number of tokens only when the model is built; the random encoder has 16
    check_length(d, v, "model.max_seq_len", job.model.max_seq_len, 16, " at build time")
  end
  if job.distributed.pp > 1 then
    d:error("vlm-with-pp", "distributed.pp", ("VLM + Pipeline Parallelism (pp = %d) is not supported"):format(job.distributed.pp),
      "pp = 1")
  end
  if v.arch == "cross_attention" then check_cross(d, v, job.model) end
  if v.arch ~= "moma" then return end
  if job.model.num_experts > 0 then
    d:error("option-contradicts", "model.num_experts", ("MoMa + model.num_experts > 0 (%d) is rejected: MoMa has the "
      .. "experts of vlm.moma_experts_per_modality"):format(job.model.num_experts), "num_experts = 0")
  end
  if job.distributed.ep > 1 then
    d:error("dialect-unsupported", "distributed.ep", ("MoMa + Expert Parallelism (ep = %d) is not supported"):format(job.distributed.ep),
      "ep = 1")
  end
  if job.train.activation_checkpointing == "full" then
    d:warn("not-applied", "train.activation_checkpointing", "activation_checkpointing = full is a no-op for MoMa: it "
      .. "recomputes blocks of another class; selective recomputes attention")
  end
end

local other = {
  mot = "projections of its own for images and for text, with positions that count from 0 in each, need an op that Tandem lacks",
  moma = "its experts choose tokens of the whole batch, and Tandem's routers choose experts for each token",
}

-- Refuses features that Tandem does not support.
function vlm.refuse(d, v, job)
  local function refuse(key, text, hint) d:error("dialect-unsupported", key, text, hint) end
  local why = other[v.arch]
  if why then refuse("vlm.arch", ("arch = '%s' is not supported: %s"):format(v.arch, why), "arch = \"joint_decoder\" or \"cross_attention\"") end
  if v.encoder.type ~= "random" then
    refuse("vision_encoder.type", ("vision_encoder.type = '%s' is read from a file of weights: its sizes are not in the "
      .. "configuration"):format(v.encoder.type), "models.llava has CLIP's encoder")
  end
  if pooling[v.adapter.type] then refuse("adapter.type", ("adapter.type = '%s': Tandem has mlp_2layer and linear"):format(v.adapter.type)) end
  if v.adapter.pre_norm ~= "" then refuse("adapter.pre_norm", ("pre_norm = '%s': Tandem's adapters have no norm"):format(
    v.adapter.pre_norm), "pre_norm = \"\"") end
  if v.frames > 1 then refuse("video", ("video of up to %d frames is not supported: Tandem has one image for each "
    .. "text"):format(v.frames)) end
  if #v.freeze_schedule > 0 then refuse("vlm.freeze_schedule", "freeze_schedule is not supported: the set of "
    .. "trained parameters never changes") end
  if v.module_patterns then refuse("vlm.module_patterns", "module_patterns: Tandem freezes transformer, adapter and vision_encoder") end
  if job.distributed.tp > 1 then refuse("distributed.tp", ("VLM with tp = %d is not "
    .. "supported"):format(job.distributed.tp), "tp = 1") end
end

local parts = { transformer = { "token_embedding", "layers", "norm", "output_head" }, adapter = { "adapter" },
  cross_attention = { "cross_attention_layers" }, vision_encoder = {} }

-- Returns true if `name` is a part of this model. Blocks that read images exist only in the
-- architecture "cross_attention".
local function knows(v, name) return parts[name] and (name ~= "cross_attention" or v.arch == name) end

-- Returns the modules that are not trained. A later entry overrides an earlier one.
function vlm.frozen(d, v)
  local state, list = {}, {}
  for _, spec in ipairs(v.freeze) do
    local name = type(spec) == "table" and spec.module
    if not knows(v, name) then
      d:error("dialect-unsupported", "vlm.freeze", ("freeze of '%s': Tandem freezes transformer, adapter, vision_encoder%s"):format(
        tostring(name), v.arch == "cross_attention" and " and cross_attention" or ""))
    else
      state[name] = spec.frozen ~= false
      -- The pattern of the transformer also matches its blocks that read images.
      if name == "transformer" and v.arch == "cross_attention" then state.cross_attention = state[name] end
    end
  end
  for _, name in ipairs { "transformer", "adapter", "cross_attention" } do
    if state[name] then table.move(parts[name], 1, #parts[name], #list + 1, list) end
  end
  return list
end

-- Returns the key `images` of models.kempnerforge.
function vlm.model(v, model)
  local images = { tokens = v.encoder.num_tokens > 0 and v.encoder.num_tokens or 16, features = v.encoder.feature_dim > 0 and v.encoder.feature_dim or 768,
    type = v.adapter.type, hidden = v.adapter.hidden_dim, activation = v.adapter.activation, arch = v.arch }
  if v.arch == "cross_attention" then
    images.every = v.cross_attention_every_n_layers
    images.heads, images.kv_heads = cross_heads(v, model)
  end
  return images
end

return vlm
