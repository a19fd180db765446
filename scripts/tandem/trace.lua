-- Traces a model: gives every module its path, records how tp may split it, and runs the model once
-- on symbolic tensors.
local _, core = ...
local check = require "tandem.check"
local modules, tensors = check.modules, check.tensors
local kind_of, shape_text, words = check.kind_of, check.shape_text, check.words
local module = require "tandem.module"
local tensor, place_module = module.tensor, module.place_module

-- Names a module and all modules inside it. A module that several parents share is named by its
-- first path.
local function name_tree(module, path, parent, order)
  local info = modules[module]
  if info.path then return end
  info.path, info.parent = path, parent
  order[#order + 1] = module
  for key, value in pairs(module) do
    if modules[value] then
      local name = info.is_list and tostring(key - 1) or key
      name_tree(value, path == "" and name or path .. "." .. name, info, order)
    end
  end
end

local function find_module(module, path)
  for part in path:gmatch "[^.]+" do
    local info = modules[module]
    local key = info.is_list and math.tointeger(tonumber(part)) or part
    if info.is_list and type(key) == "number" then key = key + 1 end
    local inner = rawget(module, key)
    if not modules[inner] then
      local names = {}
      for name, value in pairs(module) do
        if modules[value] then
          names[#names + 1] = info.is_list and tostring(name - 1) or name
        end
      end
      return nil, part, names
    end
    module = inner
  end
  return modules[module]
end

local function assign_styles(module)
  local own = modules[module]
  for _, want in ipairs(own.styles or {}) do
    local info, part, names = find_module(module, want.path)
    if not info then
      core.fail("unknown-path", ("%s = '%s': the model has no module '%s' there"):format(want.key, want.path, part),
        core.near(part, names) or "there are: " .. table.concat(names, ", "), own.location)
    end
    if not (info.tp_styles and info.tp_styles[want.style]) then
      core.fail("tp-style", ("%s = '%s': nn.%s cannot be split that way"):format(want.key, want.path,
        info.class), "tp_col and tp_row take linears, tp_vocab embeddings and heads", own.location)
    end
    local target = info.shares or info
    if target.style and target.style ~= want.style then
      core.fail("tp-style", ("%s = '%s': the module is already split by %s"):format(want.key, want.path,
        target.style), nil, own.location)
    end
    target.style, info.style = want.style, want.style
  end
end

local function build(model, mesh, shrink, seq, location)
  if modules[model] then return model, "model" end
  local known = { name = true, config = true, build = true, shrink = true }
  for key in pairs(model) do
    if not known[key] then
      core.fail("unknown-key", ("unknown key '%s' in model{}"):format(tostring(key)),
        core.near(tostring(key), words(known)), location)
    end
  end
  if type(model.build) ~= "function" then
    core.fail("missing-key", "the model has no build function",
      "a model is nn.module { ... } or { config = ..., build = function(config) ... end }", location)
  end
  local config = model.config
  if shrink and type(model.shrink) == "function" then
    config = model.shrink(config, mesh)
    if type(config) ~= "table" then
      core.fail("wrong-type", "the model's shrink must return a config", nil, location)
    end
    if config.seq then core.seq(check.count("shrink", "seq", config.seq)) end
    local field = config.field
    if type(field) == "table" then core.field(field.channels, field.targets, field.height, field.width) end
  end
  local root = model.build(config)
  if not modules[root] then
    core.fail("wrong-type", "the model's build must return a module, not " .. kind_of(root), nil, location)
  end
  return root, type(model.name) == "string" and model.name or "model"
end

local function check_all_used(order)
  for _, module in ipairs(order) do
    local info = modules[module]
    for name, own in pairs(info.params) do
      if not own.id then
        core.fail("unused-parameter", ("%s.%s is never used, so it would get no gradient"):format(info.path,
          name), "call the module in a forward function, or remove the module", info.location)
      end
    end
  end
end

function core.trace(model, mesh, shrink, seq, location)
  local root, name = build(model, mesh, shrink, seq, location)
  core.name(name, location)
  local order = {}
  name_tree(root, "", nil, order)
  for _, module in ipairs(order) do assign_styles(module) end
  place_module(modules[root])
  module.balance = false
  local tokens, labels = core.batch(modules[root].location)
  local loss = root(tensor(tokens), tensor(labels))
  if not tensors[loss] or #loss.shape ~= 0 then
    core.fail("no-loss", ("the model's forward must return a loss, not %s"):format(tensors[loss]
      and "a tensor of shape " .. shape_text(loss.shape) or kind_of(loss)),
      "return nn.cross_entropy(logits, labels)", modules[root].location)
  end
  check_all_used(order)
  core.loss(tensors[loss])
end
