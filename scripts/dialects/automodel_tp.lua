-- Turns NeMo Automodel's tensor-parallel plans into patterns of tp { plan }. The first plan that
-- exists counts: an explicit one, the one registered for the model's class, Hugging Face's own, the
-- base plan. Names of Hugging Face's modules become names of the library's modules. In a model of
-- your own, the names stay as they are. The plans do not split experts.
local _, core = ...
local dialect = require "tandem.dialect"
local hybrid = require "dialects.automodel_hybrid"
local made = require "tandem.families"
local tensor = {}

-- For each family, the library's names of Hugging Face's modules.
local gated = { gate_proj = "w1", up_proj = "w3", gate_up_proj = "w13", down_proj = "w2" }
local plain = { gate_proj = "gate", up_proj = "up", gate_up_proj = "gate_up", down_proj = "down" }
local families = {
  llama = { class = "LlamaForCausalLM", embed = "tok_embeddings", head = "output", mlp = "feed_forward", ffn = gated,
    norms = { input_layernorm = "attention_norm", post_attention_layernorm = "ffn_norm" } },
  qwen = { class = "Qwen2ForCausalLM", embed = "tok_embeddings", head = "output", mlp = "feed_forward", ffn = gated,
    norms = { input_layernorm = "attention_norm", post_attention_layernorm = "ffn_norm" } },
  mixtral = { class = "MixtralForCausalLM", embed = "tok_embeddings", head = "output", mlp = "feed_forward", ffn = {},
    norms = { input_layernorm = "attention_norm", post_attention_layernorm = "ffn_norm" } },
  gemma = { class = "Gemma3ForCausalLM", embed = "embed", head = "head", mlp = "mlp", ffn = plain,
    norms = { input_layernorm = "attention_norm", post_attention_layernorm = "post_attention_norm",
      pre_feedforward_layernorm = "mlp_norm", post_feedforward_layernorm = "post_mlp_norm" } },
  nemotron_h = hybrid.family, mamba2 = hybrid.mamba,
  phi = { class = "Phi3ForCausalLM", embed = "embed", head = "head", mlp = "mlp", ffn = plain,
    norms = { input_layernorm = "attention_norm", post_attention_layernorm = "mlp_norm" } },
}
local phi2 = { class = "PhiForCausalLM", embed = "embed", head = "head", mlp = "mlp",
  ffn = { fc1 = "fc1", fc2 = "fc2" }, norms = { input_layernorm = "norm" } }

-- Hugging Face's classes for the library's models.
local classes = {
  llama = { "LlamaForCausalLM", "MistralForCausalLM" },
  qwen = { "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM" },
  gemma = { "Gemma2ForCausalLM", "Gemma3ForCausalLM" }, phi = { "PhiForCausalLM", "Phi3ForCausalLM" },
  mixtral = { "MixtralForCausalLM" }, gpt2 = { "GPT2LMHeadModel" }, gpt_oss = { "GptOssForCausalLM" },
  deepseek = { "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM" }, nemotron_h = { hybrid.family.class },
  mamba2 = { hybrid.mamba.class }, t5 = { "T5ForConditionalGeneration" }, vit = { "ViTForImageClassification" },
  llava = { "LlavaForConditionalGeneration" }, qwen2_vl = { "Qwen2VLForConditionalGeneration" },
}

-- Returns the name of the model's family in the library, or nil if the model is the user's own.
function tensor.library(model)
  local found = made.of(model)
  return found and classes[found] and found or nil
end

-- Returns the set of classes of a library model, or nil if the model is the user's own.
function tensor.classes(model)
  local found, set = tensor.library(model), {}
  for _, class in ipairs(found and classes[found] or {}) do set[class] = true end
  return found and set
end

-- A fused model lacks the modules in `apart`, because one projection replaces them. An unfused
-- model lacks the modules in `together`.
local apart = { q_proj = true, k_proj = true, v_proj = true, gate_proj = true, up_proj = true }
local together = { qkv_proj = true, gate_up_proj = true }
local attention = { q_proj = "wq", k_proj = "wk", v_proj = "wv", qkv_proj = "wqkv", o_proj = "wo", dense = "wo" }

local function names_of(modules, fused)
  local own = {}
  for name, is in pairs(modules) do
    if not (fused and apart or together)[name] then own[name] = is end
  end
  return own
end

-- Returns the class of a library model and the names of its modules, or nil if the model is the
-- user's own.
function tensor.family(model)
  local found = families[made.of(model)]
  if not found then return nil end
  local config = type(model.config) == "table" and model.config or {}
  if found == families.phi and config.parallel then found = phi2 end
  local is_moe = config.experts and found == families.qwen
  return { class = is_moe and "Qwen3MoeForCausalLM" or found.class, embed = found.embed, head = found.head, mlp = found.mlp, norms = found.norms,
    mixer = found.mixer, ffn = is_moe and {} or names_of(found.ffn, config.fused), attention = names_of(attention, config.fused) }
end

-- Translates "model.layers.*.self_attn.q_proj" to "layers.*.attention.wq". Returns nil if the model
-- has no such module.
local function translate(family, name)
  if not family then return name end
  if name == "model.embed_tokens" then return family.embed end
  if name == "lm_head" then return family.head end
  if name == "model.norm" or name == "model.final_layernorm" then return "norm" end
  local layer, rest = name:match "^model%.layers%.([%d*]+)%.(.+)$"
  if not layer then return nil end
  local inner = rest:match "^self_attn%.(.+)$"
  if inner then
    local own = family.attention[inner]
    return own and ("layers.%s.attention.%s"):format(layer, own)
  end
  inner = rest:match "^mlp%.(.+)$"
  if inner then return family.ffn[inner] and ("layers.%s.%s.%s"):format(layer, family.mlp, family.ffn[inner]) end
  inner = rest:match "^mixer%.(.+)$"
  if inner then
    local own = family.mixer and family.mixer[inner]
    return own and ("layers.%s.mixer.%s"):format(layer, own)
  end
  if rest == "self_attn" then return ("layers.%s.attention"):format(layer) end
  if rest == "mlp" then return ("layers.%s.%s"):format(layer, family.mlp) end
  return family.norms[rest] and ("layers.%s.%s"):format(layer, family.norms[rest])
end
tensor.translate = translate

-- Returns a hint with the module names that are nearest to a misspelt name.
local function nearest(family, name)
  local names = { "model.embed_tokens", "model.norm", "lm_head" }
  local layer = name:match "^model%.layers%.([%d*]+)%." or "*"
  for inner in pairs(family.attention) do names[#names + 1] = ("model.layers.%s.self_attn.%s"):format(layer, inner) end
  for inner in pairs(family.ffn) do names[#names + 1] = ("model.layers.%s.mlp.%s"):format(layer, inner) end
  for inner in pairs(family.norms) do names[#names + 1] = ("model.layers.%s.%s"):format(layer, inner) end
  return core.near(name, names)
end

local styles = { colwise = true, rowwise = true, colwise_rep = true, rowwise_rep = true, sequence_parallel = true }

-- Turns the paths of a plan into styles under the model's names. where: the key that errors name.
-- must_match: true if a name that the model lacks is an error. Automodel's own plans list several
-- spellings of a name, so they are read without must_match.
local function to_plan(d, family, plan, where, must_match)
  local result, n = {}, 0
  for name, style in pairs(plan) do
    local at = where:match "tp_plan$" and type(name) == "string" and { where:match "^[^.]+", "tp_plan", name } or where
    if type(name) ~= "string" or type(style) ~= "string" then
      d:error("wrong-type", at, ("%s: a plan maps module names to styles"):format(where),
        "{ [\"model.layers.*.self_attn.q_proj\"] = \"colwise\" }")
    elseif name:match "%.experts" or name:match "%.router" or name:match "%.gate$" or name:match "shared_expert_gate"
      or name:match "%.mlp$" or name:match "%.block_sparse_moe$" then
      d:error("ep-owned", at, ("%s: '%s' is EP-owned: expert parallelism places it"):format(where, name),
        "leave it out; shared_experts' projections may be split")
    elseif style == "replicated_with_grad_allreduce" or style:match "^ep_" or style:match "^local_" then
      d:note("dialect-differs", at, ("%s: style '%s' of '%s' is skipped, as Automodel does"):format(where, style, name))
    elseif not styles[style] then
      d:error("unknown-word", at, ("%s: Unknown parallel style: '%s' ('%s')"):format(where, style, name),
        "one of: colwise, rowwise, colwise_rep, rowwise_rep, sequence_parallel")
    else
      local own = translate(family, name)
      if own then
        result[own], n = style, n + 1
      elseif must_match then
        d:error("pattern-matched-nothing", at, ("%s: '%s' names no module of the model"):format(where, name),
          nearest(family, name) or "Hugging Face's names: model.layers.*.self_attn.q_proj, lm_head, ...")
      end
    end
  end
  return result, n
end

local llama_plan = {
  ["model.embed_tokens"] = "rowwise_rep", ["model.layers.*.self_attn.q_proj"] = "colwise",
  ["model.layers.*.self_attn.k_proj"] = "colwise", ["model.layers.*.self_attn.v_proj"] = "colwise",
  ["model.layers.*.self_attn.o_proj"] = "rowwise", ["model.layers.*.mlp.gate_proj"] = "colwise",
  ["model.layers.*.mlp.up_proj"] = "colwise", ["model.layers.*.mlp.down_proj"] = "rowwise", lm_head = "colwise",
  ["model.layers.*.self_attn.qkv_proj"] = "colwise", ["model.layers.*.mlp.gate_up_proj"] = "colwise",
}
local llama_sequence = { ["model.norm"] = "sequence_parallel",
  ["model.layers.*.input_layernorm"] = "sequence_parallel",
  ["model.layers.*.post_attention_layernorm"] = "sequence_parallel" }
local gemma_sequence = { ["model.norm"] = "sequence_parallel",
  ["model.layers.*.input_layernorm"] = "sequence_parallel",
  ["model.layers.*.post_attention_layernorm"] = "sequence_parallel",
  ["model.layers.*.pre_feedforward_layernorm"] = "sequence_parallel",
  ["model.layers.*.post_feedforward_layernorm"] = "sequence_parallel" }
local phi_plan = {
  ["model.layers.*.self_attn.q_proj"] = "colwise", ["model.layers.*.self_attn.k_proj"] = "colwise",
  ["model.layers.*.self_attn.v_proj"] = "colwise", ["model.layers.*.self_attn.dense"] = "rowwise",
  ["model.layers.*.self_attn.qkv_proj"] = "colwise",
  ["model.layers.*.mlp.fc1"] = "colwise", ["model.layers.*.mlp.fc2"] = "rowwise" }
-- Every rank computes all of attention: q, k and v are split by inputs, and their outputs are
-- summed. The outputs of o and of gate_up are gathered. (Automodel treats gate_up as one matrix.)
local phi3_plan = { ["model.layers.*.self_attn.qkv_proj"] = "rowwise_rep",
  ["model.layers.*.mlp.gate_up_proj"] = "colwise_rep", ["model.layers.*.self_attn.q_proj"] = "rowwise_rep",
  ["model.layers.*.self_attn.k_proj"] = "rowwise_rep", ["model.layers.*.self_attn.v_proj"] = "rowwise_rep",
  ["model.layers.*.self_attn.o_proj"] = "colwise_rep", ["model.layers.*.mlp.gate_proj"] = "colwise",
  ["model.layers.*.mlp.up_proj"] = "colwise", ["model.layers.*.mlp.down_proj"] = "rowwise" }

-- For each model class: the plan, its additions for sequence parallelism (nil: not supported), and
-- whether q, k and v then share one gather. Without sequence parallelism, every column linear sums
-- the gradient of its own input.
local registered = {
  LlamaForCausalLM = { llama_plan, llama_sequence, true },
  Qwen2ForCausalLM = { llama_plan, llama_sequence, true },
  Qwen3ForCausalLM = { llama_plan, llama_sequence, true },
  Gemma3ForCausalLM = { llama_plan, gemma_sequence, false },
  NemotronHForCausalLM = { hybrid.tp_plan }, PhiForCausalLM = { phi_plan }, Phi3ForCausalLM = { phi3_plan },
}
-- Further classes for which Automodel has a plan, its own or the base plan. They have no entry in
-- `registered`.
local of_base = { MistralForCausalLM = true, MixtralForCausalLM = true, Qwen3MoeForCausalLM = true, GPT2LMHeadModel = true,
  Gemma2ForCausalLM = true }
function tensor.knows(class) return registered[class] ~= nil or of_base[class] == true end
local named = { llama_nemotron_super_tp_plan = registered.LlamaForCausalLM }
local base = { llama_plan, llama_sequence, true }

local function with_sequence(plan, extra)
  local own = {}
  for name, style in pairs(plan) do own[name] = style end
  for name, style in pairs(extra or {}) do own[name] = style end
  return own
end

-- Returns Hugging Face's plan as Automodel uses it. If head and embedding are not tied, logits stay
-- split over the vocabulary, and the embedding is split, too.
local function hf_plan(given, tied)
  local own = with_sequence(given)
  if not tied and own.lm_head == "colwise_rep" then own.lm_head = "colwise" end
  if not tied and not own["model.embed_tokens"] then own["model.embed_tokens"] = "rowwise_rep" end
  return own
end

local function count(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n
end

-- Returns the possible sizes of tp as a text, "1, 2, 4", and the largest of them that is at most
-- s.tp. A size must divide the numbers of query heads and KV heads, the features of an MLP, and the
-- number of ranks that the other axes leave to tp and dp.
function tensor.sizes(s, hf)
  local common = dialect.common(hf.num_attention_heads, hf.num_key_value_heads, s.hidden, s.left)
  local nearest = math.min(common, s.tp)
  while nearest > 1 and common % nearest ~= 0 do nearest = nearest - 1 end
  return dialect.divisors(common), math.max(nearest, 1)
end

-- Checks that tp divides the heads, in the order of Automodel's validate_tp_mesh: KV heads first.
local function check_heads(d, s, hf)
  local heads, groups, tp = hf.num_attention_heads, hf.num_key_value_heads, s.tp
  if not heads or heads == 0 then
    d:mistake("heads-unknown", "hf", ("the model's configuration does not give the number of heads: 0 %% %d is 0, "
      .. "so Automodel's check passes"):format(tp),
      "hf = { num_attention_heads = 32, num_key_value_heads = 8 }")
    return
  end
  local legal = "tp_size may be " .. tensor.sizes(s, hf)
  if groups % tp ~= 0 then
    d:error("divides-heads", "distributed.tp_size",
      ("num_key_value_heads (%d) must be divisible by tp_size (%d)"):format(groups, tp), legal)
  end
  if heads % tp ~= 0 then
    d:error("divides-heads", "distributed.tp_size",
      ("num_attention_heads (%d) must be divisible by tp_size (%d)"):format(heads, tp), legal)
  end
end

local function explicit(d, family, plan)
  local where = "distributed.tp_plan"
  if type(plan) == "string" then
    if named[plan] then return named[plan] end
    d:error("tp-plan-missing", where, ("tp_plan = '%s' names no plan"):format(plan),
      core.near(plan, { "llama_nemotron_super_tp_plan" }) or "give a table of module names and styles")
    return nil
  end
  if type(plan) ~= "table" then
    d:error("tp-plan-missing", where, ("tp_plan must be a table of styles or a plan's name, not %s"):format(type(plan)),
      "{ [\"model.layers.*.self_attn.q_proj\"] = \"colwise\" }")
    return nil
  end
  if count(plan) == 0 then
    d:error("tp-plan-missing", where, "tp_plan is empty: tensor parallelism would do nothing",
      "leave it out for the plan of the model's class")
    return nil
  end
  return { plan, nil, true, explicit = true }
end

-- Returns the plan that Automodel would choose, as an entry of `registered`; "own" if the model's
-- own lists count; nil after an error.
local function choose(d, family, options, hf, tp)
  if options.tp_plan ~= nil then return explicit(d, family, options.tp_plan) end
  if registered[hf.class] then return registered[hf.class] end
  if hf.tp_plan ~= nil and count(hf.tp_plan) > 0 then
    return { hf_plan(hf.tp_plan, hf.tie_word_embeddings), llama_sequence, true, hf = true }
  end
  if hf.remote_code then
    d:error("tp-plan-missing", "hf.remote_code",
      ("the remote-code model '%s' has no tensor-parallel plan, and tp_size = %d"):format(hf.class, tp),
      "distributed = { tp_plan = { ... } }")
    return nil
  end
  if hf.tp_plan ~= nil then
    d:error("tp-plan-missing", "hf.tp_plan",
      ("Hugging Face's plan for '%s' is empty, and tp_size = %d: tensor parallelism would split nothing"):format(
        hf.class, tp), "leave hf.tp_plan out for the base plan, or give distributed.tp_plan")
    return nil
  end
  return family and base or "own"
end

-- Returns the options of tp{} for a model for which Automodel has no plan. The model's own lists
-- tp_col and tp_row then count, and the report says so. A model with experts is refused.
local function own_options(d, hf, tp, experts, sequence)
  if experts then
    d:error("tp-plan-missing", "distributed.tp_size", ("tp_size = %d: Automodel has no tensor-parallel plan for %s, a "
      .. "model of experts"):format(tp, hf.class), "tp_size = 1, or distributed = { tp_plan = { ... } }")
    return nil
  end
  d:note("model-class", "distributed.tp_size", ("tp_size = %d: this dialect has no plan for %s, so tp follows the model's "
    .. "own notes (tp_col, tp_row)"):format(tp, hf.class))
  -- torch keeps the gathered inputs of linears for the backward pass
  return { sequence = sequence, share_gathers = false, keep_gathered = sequence }
end

-- Returns the options of tp{}, or nil after errors. s: the sizes of axes. s.left: the ranks for tp
-- and dp together. s.hidden, s.experts: the width of an MLP and the number of experts of a library
-- model.
function tensor.options(d, options, hf, family, s)
  local tp = s.tp
  check_heads(d, s, hf)
  hybrid.check_tensor(d, options, hf)
  local sequence = options.sequence_parallel
  if options.enable_async_tensor_parallel then
    if not sequence then
      d:error("async-sequence", "distributed.enable_async_tensor_parallel",
        "enable_async_tensor_parallel needs sequence_parallel: without it there is no gather to overlap",
        "sequence_parallel = true, or leave it out")
    else
      d:error("dialect-unsupported", "distributed.enable_async_tensor_parallel",
        "enable_async_tensor_parallel is not supported: this version does not split gathers into tiles", "leave it out")
    end
  end
  local chosen = choose(d, family, options, hf, tp)
  if not chosen then return nil end
  if chosen == "own" then return own_options(d, hf, tp, s.experts, sequence) end
  if sequence and not chosen.explicit and not chosen[2] then
    d:warn("not-applied", "distributed.sequence_parallel",
      ("sequence_parallel: the plan of %s does not support it; activations stay whole"):format(hf.class))
    sequence = false
  end
  local where = chosen.explicit and "distributed.tp_plan" or chosen.hf and "hf.tp_plan" or "distributed"
  local plan, n = to_plan(d, family, with_sequence(chosen[1], sequence and chosen[2] or nil), where,
    chosen.explicit or chosen.hf)
  if n == 0 and d.n_errors == 0 then
    d:error("tp-plan-missing", where, ("no entry of the plan names a module, so tp_size = %d would split nothing")
      :format(tp))
  end
  return { sequence = sequence, share_gathers = (sequence and chosen[3]) or false, plan = plan,
    plan_only = true, keep_gathered = sequence }
end

return tensor
