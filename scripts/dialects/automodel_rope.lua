-- Turns Hugging Face's hf.rope_scaling, which stretches rotary positions, into the rope_scaling of
-- a library model. A kind that Tandem lacks is refused by name.
local nn = require "tandem.nn"
local values = require "tandem.dialect_values"
local rope = {}

rope.hf_keys = { rope_scaling = { "list" }, max_position_embeddings = { "integer" },
  original_max_position_embeddings = { "integer" } }

local at, types = "hf.rope_scaling", "types: linear, llama3, yarn, longrope"

-- keys: the keys of Hugging Face's table
-- needs: the keys that a recipe must state. context means the original context in tokens, length
--   the stretched one
-- longest_is_context: true if max_position_embeddings is the original context when the recipe
--   states no other. (With Llama's scaling, it is the stretched context.)
-- make: returns the library's rope_scaling
local number = { "number" }
local kinds = {
  default = { keys = {}, needs = {}, make = function() return false end },
  -- Llama's scaling with low = high divides every frequency by the same factor.
  linear = { keys = { factor = number }, needs = { "factor" },
    make = function(own) return { factor = own.factor, low = 1e30, high = 1e30, context = 8192 } end },
  llama3 = { keys = { factor = number, low_freq_factor = number, high_freq_factor = number },
    needs = { "factor", "low_freq_factor", "high_freq_factor", "context" },
    make = function(own)
      return { factor = own.factor, low = own.low_freq_factor, high = own.high_freq_factor, context = own.context }
    end },
  yarn = { keys = { factor = number, beta_fast = { "number", 32.0 }, beta_slow = { "number", 1.0 }, truncate = { "boolean", true },
      mscale = number, mscale_all_dim = number, attention_factor = number },
    needs = { "factor", "context" }, longest_is_context = true,
    make = function(own)
      return { kind = "yarn", factor = own.factor, fast = own.beta_fast, slow = own.beta_slow, context = own.context,
        truncate = own.truncate, mscale = own.mscale, mscale_all_dim = own.mscale_all_dim }
    end },
  longrope = { keys = { factor = number, short_factor = { "list" }, long_factor = { "list" }, attention_factor = number },
    needs = { "short_factor", "long_factor", "context", "length" }, longest_is_context = true,
    make = function(own)
      return { kind = "longrope", short = own.short_factor, long = own.long_factor, context = own.context, length = own.length,
        attention_factor = own.attention_factor }
    end },
}
kinds.su = kinds.longrope -- older configurations call longrope su
local told = { context = "original_max_position_embeddings", length = "hf.max_position_embeddings" }
local refused = {
  dynamic = "stretches by the length of each input, so that the model is another one for each length",
  mrope = "gives each token of an image a row and a column, which only models.qwen2_vl has",
}

-- Returns the kind of the table, or nil after an error. A table without rope_type, or with two
-- different types, is refused.
local function kind_of(d, given)
  local kind, older = given.rope_type, given.type
  if kind == nil then kind = older end
  if kind == nil then
    d:error("missing-key", at, "hf.rope_scaling lacks rope_type", types)
  elseif type(kind) ~= "string" then
    d:error("wrong-type", at, ("hf.rope_scaling.rope_type must be a text, not %s"):format(tostring(kind)))
  elseif older ~= nil and older ~= kind and not (kinds[kind] and kinds[kind] == kinds[older]) then
    d:error("unknown-word", at, ("hf.rope_scaling has two types: rope_type = '%s' and type = '%s'"):format(kind,
      tostring(older)), "leave one of them out")
  elseif refused[kind] then
    d:error("dialect-unsupported", at, ("rope_scaling of type '%s' is not supported: it %s"):format(kind, refused[kind]), types)
  elseif not kinds[kind] then
    local known = {}
    for name in pairs(kinds) do known[#known + 1] = name end
    d:error("unknown-word", at, ("rope_scaling has the type '%s'"):format(kind), values.near(kind, known) or types)
  else
    return kind
  end
  return nil
end

-- Returns the keys of hf.rope_scaling with their defaults, and with `context` and `length`. Also
-- returns which keys beside the table were read.
local function read(d, hf, kind)
  local own = values.section(d, at, hf.rope_scaling, nn.with(kinds[kind].keys, { rope_type = { "text" }, type = { "text" },
    original_max_position_embeddings = { "integer" } }))
  local needs, used = {}, {}
  for _, key in ipairs(kinds[kind].needs) do needs[key] = true end
  local context, length = own.original_max_position_embeddings, hf.max_position_embeddings
  if not context and needs.context then
    context = hf.original_max_position_embeddings
    used.original_max_position_embeddings = true
  end
  if not context and kinds[kind].longest_is_context then
    context, length = hf.max_position_embeddings, nil
    used.max_position_embeddings = true
  end
  if needs.length then
    length = length or (context and own.factor and math.tointeger(context * own.factor)) or hf.max_position_embeddings
    used.max_position_embeddings = true
  end
  return nn.with(own, { context = context, length = length }), used
end

-- Reports the keys of hf next to rope_scaling that have no effect.
local function tell_unused(d, hf, used)
  for _, key in ipairs { "max_position_embeddings", "original_max_position_embeddings" } do
    if hf[key] and not used[key] then
      d:note("dialect-differs", "hf." .. key, ("hf.%s = %d has no effect: %s"):format(key, hf[key],
        hf.rope_scaling and "this rope_scaling does not read it" or "it is read with hf.rope_scaling only"))
    end
  end
end

local positive = { "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "original_max_position_embeddings" }

-- Returns false if a key is missing or out of its bounds, or if Tandem would compute something else than Automodel.
local function check(d, kind, own)
  local before = d.n_errors
  for _, key in ipairs(kinds[kind].needs) do
    if own[key] == nil then
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

local function list_text(list)
  local all = {}
  for i, n in ipairs(list) do all[i] = tostring(n) end
  return "{ " .. table.concat(all, ", ") .. " }"
end

local function same(a, b)
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- Returns true if hf.rope_scaling has sections of time, row and column, as models.qwen2_vl has.
-- Reports an error if they differ from the model's sections.
local function says_sections(d, given, sections)
  local kind = given.rope_type or given.type
  local stated = given.mrope_section
  if type(stated) ~= "table" or (kind ~= "mrope" and kind ~= "default") then return false end
  if not same(stated, sections) then
    d:error("dialect-unsupported", at, ("hf.rope_scaling.mrope_section = %s, but the model has sections = %s"):format(
      list_text(stated), list_text(sections)), "give the model the same sections")
  end
  return true
end

-- Returns the model with the scaling of hf.rope_scaling. Without the key, returns the model unchanged.
function rope.model(d, hf, model)
  local given = hf.rope_scaling
  local config = type(model) == "table" and rawget(model, "config")
  local sections = type(config) == "table" and config.sections
  if given == nil or sections and says_sections(d, given, sections) then
    tell_unused(d, hf, {})
    return model
  end
  if type(config) ~= "table" or config.rope_scaling == nil then
    d:error("dialect-unsupported", at, ("hf.rope_scaling: %s does not take a scaling of its rotary positions"):format(
      config and "the model " .. tostring(rawget(model, "name")) or "a model of your own"),
      sections and "models.qwen2_vl takes type = 'mrope' with its own mrope_section"
        or "models.llama, models.qwen, models.phi, models.gpt_oss and models.deepseek take one")
    return model
  end
  if given.mrope_section ~= nil then
    d:error("dialect-unsupported", at, ("hf.rope_scaling.mrope_section: only models.qwen2_vl has sections; the "
      .. "model is %s"):format(tostring(rawget(model, "name"))), "leave out mrope_section, or plan models.qwen2_vl")
    return model
  end
  local kind = kind_of(d, given)
  if not kind then return model end
  local own, used = read(d, hf, kind)
  if not check(d, kind, own) then return model end
  tell_unused(d, hf, used)
  return nn.with(model, { config = nn.with(config, { rope_scaling = kinds[kind].make(own) }) })
end

return rope
