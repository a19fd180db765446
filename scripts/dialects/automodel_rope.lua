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
  mrope = "gives each token of an image a row and a column, which only models.qwen2_vl has",
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

-- The kind of a table without rope_type, or with two that differ, is not guessed. nil after an error.
local function kind_of(d, at, given)
  local kind, older = given.rope_type, given.type
  if kind == nil then kind = older end
  if kind == nil then
    d:error("missing-key", at, "hf.rope_scaling lacks rope_type", "types: linear, llama3, yarn, longrope")
  elseif type(kind) ~= "string" then
    d:error("wrong-type", at, ("hf.rope_scaling.rope_type must be a text, not %s"):format(tostring(kind)))
  elseif older ~= nil and older ~= kind and not (made[kind] and made[kind] == made[older]) then
    d:error("unknown-word", at, ("hf.rope_scaling has two types: rope_type = '%s' and type = '%s'"):format(kind,
      tostring(older)), "leave one of them out")
  elseif refused[kind] then
    d:error("dialect-unsupported", at, ("rope_scaling of type '%s' is not supported: it %s"):format(kind, refused[kind]),
      "types: linear, llama3, yarn, longrope")
  elseif not own_keys[kind] then
    local known = {}
    for name in pairs(own_keys) do known[#known + 1] = name end
    d:error("unknown-word", at, ("rope_scaling has the type '%s'"):format(kind),
      values.near(kind, known) or "types: linear, llama3, yarn, longrope")
  else
    return kind
  end
  return nil
end

-- Returns the kind, its keys with defaults, the original context and the stretched length; nil after
-- an error. max_position_embeddings may be the original context of yarn and longrope only: beside
-- Llama's scaling it is the stretched one.
local function read(d, hf)
  local given, at = hf.rope_scaling, "hf.rope_scaling"
  local kind = kind_of(d, at, given)
  if not kind then return nil end
  local own = values.section(d, at, given, nn.with(own_keys[kind], { rope_type = { "text" }, type = { "text" },
    original_max_position_embeddings = { "integer" } }))
  local needs, used = {}, {}
  for _, key in ipairs(needed[kind]) do needs[key] = true end
  local context, length = own.original_max_position_embeddings, hf.max_position_embeddings
  if not context and needs.context then
    context = hf.original_max_position_embeddings
    used.original_max_position_embeddings = true
  end
  if not context and kind ~= "llama3" and needs.context then
    context, length = hf.max_position_embeddings, nil
    used.max_position_embeddings = true
  end
  if needs.length then
    length = length or (context and own.factor and math.tointeger(context * own.factor)) or hf.max_position_embeddings
    used.max_position_embeddings = true
  end
  return kind, own, context, length, used
end

-- The keys beside rope_scaling that do nothing.
local function tell_unused(d, hf, used)
  for _, key in ipairs { "max_position_embeddings", "original_max_position_embeddings" } do
    if hf[key] and not used[key] then
      d:note("dialect-differs", "hf." .. key, ("hf.%s = %d has no effect: %s"):format(key, hf[key],
        hf.rope_scaling and "this rope_scaling does not read it" or "it is read with hf.rope_scaling only"))
    end
  end
end

local positive = { "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "original_max_position_embeddings" }

-- Returns false if a key is missing or out of its bounds, or if Tandem would compute something else.
local function check(d, kind, own, context, length)
  local before, there = d.n_errors, nn.with(own, { context = context, length = length })
  local at = "hf.rope_scaling"
  for _, key in ipairs(needed[kind]) do
    if there[key] == nil then
      d:error("missing-key", at, ("hf.rope_scaling of type '%s' needs %s"):format(kind, told[key] or key),
        key == "context" and kind == "llama3" and "8192 for Llama 3; max_position_embeddings is the stretched context" or nil)
    end
  end
  if own.factor and not (own.factor >= 1) then
    d:error("out-of-range", at, ("hf.rope_scaling.factor = %.14g must be at least 1"):format(own.factor),
      "the factor by which the context grows")
  end
  for _, key in ipairs(positive) do
    if own[key] and not (own[key] > 0) then
      d:error("out-of-range", at, ("hf.rope_scaling.%s = %.14g must be above 0"):format(key, own[key]))
    end
  end
  if kind == "llama3" and own.low_freq_factor and own.high_freq_factor and not (own.high_freq_factor > own.low_freq_factor) then
    d:error("out-of-range", at, ("hf.rope_scaling.high_freq_factor = %.14g must be above low_freq_factor = %.14g"):format(
      own.high_freq_factor, own.low_freq_factor))
  end
  if kind == "yarn" and own.attention_factor then
    d:error("dialect-unsupported", at, "rope_scaling of type 'yarn' with an attention_factor of its own: Tandem has "
      .. "0.1 ln(factor) + 1, or mscale and mscale_all_dim", "leave out attention_factor")
  end
  return d.n_errors == before
end

-- True if hf.rope_scaling says what models.qwen2_vl does: its sections of time, row and column.
local function says_sections(d, given, sections)
  local kind = given.rope_type or given.type
  local stated = given.mrope_section
  if type(stated) ~= "table" or (kind ~= "mrope" and kind ~= "default") then return false end
  for i = 1, math.max(#stated, #sections) do
    if stated[i] ~= sections[i] then
      local function list(of)
        local all = {}
        for k, n in ipairs(of) do all[k] = tostring(n) end
        return "{ " .. table.concat(all, ", ") .. " }"
      end
      d:error("dialect-unsupported", "hf.rope_scaling", ("hf.rope_scaling.mrope_section = %s, but the model has sections = "
        .. "%s"):format(list(stated), list(sections)), "give the model the same sections")
      break
    end
  end
  return true
end

-- Returns the model with the scaling of hf.rope_scaling, or the model as it is if there is none.
function rope.model(d, hf, model)
  if hf.rope_scaling == nil then
    tell_unused(d, hf, {})
    return model
  end
  local config = type(model) == "table" and rawget(model, "config")
  local sections = type(config) == "table" and config.sections
  if sections and says_sections(d, hf.rope_scaling, sections) then
    tell_unused(d, hf, {})
    return model
  end
  if type(config) ~= "table" or config.rope_scaling == nil then
    d:error("dialect-unsupported", "hf.rope_scaling", ("hf.rope_scaling: %s does not take a scaling of its rotary "
      .. "positions"):format(config and "the model " .. tostring(rawget(model, "name")) or "a model of your own"),
      sections and "models.qwen2_vl takes type = 'mrope' with its own mrope_section"
        or "models.llama, models.qwen, models.phi, models.gpt_oss and models.deepseek take one")
    return model
  end
  if hf.rope_scaling.mrope_section ~= nil then
    d:error("dialect-unsupported", "hf.rope_scaling", ("hf.rope_scaling.mrope_section: only models.qwen2_vl has sections; the "
      .. "model is %s"):format(tostring(rawget(model, "name"))), "leave out mrope_section, or plan models.qwen2_vl")
    return model
  end
  local kind, own, context, length, used = read(d, hf)
  if not kind or not check(d, kind, own, context, length) then return model end
  tell_unused(d, hf, used)
  local changed = {}
  for key, value in pairs(model) do changed[key] = value end
  changed.config = nn.with(config, { rope_scaling = made[kind](own, context, length) })
  return changed
end

return rope
