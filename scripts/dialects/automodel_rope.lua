-- How Hugging Face's configuration stretches rotary positions: hf.rope_scaling by its keys, turned
-- into the rope_scaling of a library model. A kind that Tandem does not have is refused by name.
local nn = require "tandem.nn"
local values = require "tandem.dialect_values"
local rope = {}

rope.hf_keys = { rope_scaling = { "list" }, max_position_embeddings = { "integer" },
  original_max_position_embeddings = { "integer" } }

local own_keys = {
  default = {}, linear = { factor = { "number" } },
  llama3 = { factor = { "number" }, low_freq_factor = { "number" }, high_freq_factor = { "number" } },
  yarn = { factor = { "number" }, beta_fast = { "number", 32.0 }, beta_slow = { "number", 1.0 }, truncate = { "boolean", true },
    mscale = { "number" }, mscale_all_dim = { "number" }, attention_factor = { "number" } },
  longrope = { factor = { "number" }, short_factor = { "list" }, long_factor = { "list" }, attention_factor = { "number" } },
}
own_keys.su = own_keys.longrope -- its name in older configurations
local needed = { default = {}, linear = { "factor" }, llama3 = { "factor", "low_freq_factor", "high_freq_factor", "context" },
  yarn = { "factor", "context" }, longrope = { "short_factor", "long_factor", "context", "length" } }
needed.su = needed.longrope
local told = { context = "original_max_position_embeddings", length = "hf.max_position_embeddings" }
local refused = {
  dynamic = "stretches by the length of each input, so that the model is another one for each length",
  mrope = "gives each token of an image a row and a column",
}

-- Each of these returns the library's rope_scaling; context: the original one, in tokens.
local made = {}
function made.default() return false end
-- Llama's scaling with low = high stretches every wavelength equally.
function made.linear(own) return { factor = own.factor, low = 1e30, high = 1e30, context = 8192 } end
function made.llama3(own, context)
  return { factor = own.factor, low = own.low_freq_factor, high = own.high_freq_factor, context = context }
end
function made.yarn(own, context)
  return { kind = "yarn", factor = own.factor, fast = own.beta_fast, slow = own.beta_slow, context = context, truncate = own.truncate,
    mscale = own.mscale, mscale_all_dim = own.mscale_all_dim }
end
function made.longrope(own, context, length)
  return { kind = "longrope", short = own.short_factor, long = own.long_factor, context = context, length = length,
    attention_factor = own.attention_factor }
end
made.su = made.longrope

-- Returns the kind, its keys with defaults, and the original context; nil after an error.
local function read(d, hf)
  local given, at = hf.rope_scaling, "hf.rope_scaling"
  local kind = given.rope_type or given.type
  if refused[kind] or given.mrope_section then
    kind = given.mrope_section and "mrope" or kind
    d:error("dialect-unsupported", at, ("rope_scaling of type '%s' is not supported: it %s"):format(kind, refused[kind]),
      kind == "mrope" and "models.qwen2_vl in a plan without the dialect" or "types: linear, llama3, yarn, longrope")
    return nil
  end
  local keys = type(kind) == "string" and own_keys[kind]
  if not keys then
    local known = {}
    for name in pairs(own_keys) do known[#known + 1] = name end
    d:error("unknown-word", at, ("rope_scaling has the type '%s'"):format(tostring(kind)),
      values.near(tostring(kind), known) or "types: linear, llama3, yarn, longrope")
    return nil
  end
  keys = nn.with(keys, { rope_type = { "text" }, type = { "text" }, original_max_position_embeddings = { "integer" } })
  local own = values.section(d, at, given, keys)
  return kind, own, own.original_max_position_embeddings or hf.original_max_position_embeddings or hf.max_position_embeddings
end

-- Returns false if a key is missing, or if Tandem would compute something else.
local function check(d, kind, own, context, length)
  local before, there = d.n_errors, nn.with(own, { context = context, length = length })
  for _, key in ipairs(needed[kind]) do
    if there[key] == nil then
      d:error("missing-key", "hf.rope_scaling", ("hf.rope_scaling of type '%s' needs %s"):format(kind, told[key] or key))
    end
  end
  if kind == "yarn" and own.attention_factor then
    d:error("dialect-unsupported", "hf.rope_scaling", "rope_scaling of type 'yarn' with an attention_factor of its own: Tandem has "
      .. "0.1 ln(factor) + 1, or mscale and mscale_all_dim", "leave out attention_factor")
  end
  return d.n_errors == before
end

-- Returns the model with the scaling of hf.rope_scaling, or the model as it is if there is none.
function rope.model(d, hf, model)
  if hf.rope_scaling == nil then return model end
  local config = type(model) == "table" and rawget(model, "config")
  if type(config) ~= "table" or config.rope_scaling == nil then
    d:error("dialect-unsupported", "hf.rope_scaling", ("hf.rope_scaling: %s does not take a scaling of its rotary "
      .. "positions"):format(config and "the model " .. tostring(rawget(model, "name")) or "a model of your own"),
      "models.llama, models.qwen, models.phi, models.gpt_oss and models.deepseek take one")
    return model
  end
  local kind, own, context = read(d, hf)
  if not kind then return model end
  local length = hf.max_position_embeddings or (context and own.factor and math.tointeger(context * own.factor))
  if not check(d, kind, own, context, length) then return model end
  local changed = {}
  for key, value in pairs(model) do changed[key] = value end
  changed.config = nn.with(config, { rope_scaling = made[kind](own, context, length) })
  return changed
end

return rope
