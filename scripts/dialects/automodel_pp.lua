-- Turns NeMo Automodel's section distributed.pipeline into options of pp{}: the number of virtual
-- stages, their ranks, and the layers of each stage.
local dialect = require "tandem.dialect"
local pipeline = {}

pipeline.keys = {
  pp_schedule = { "any" }, pp_schedule_csv = { "text" }, pp_microbatch_size = { "integer", 1 },
  pp_batch_size = { "integer" }, layers_per_stage = { "integer" }, round_virtual_stages_to_pp_multiple = { "any" },
  module_fqns_per_model_part = { "list" }, patch_inner_model = { "boolean", true },
  patch_causal_lm_model = { "boolean", true }, patch_stage_backward_maybe_with_nosync = { "boolean", false },
  dtype = { "text" }, scale_grads_in_schedule = { "boolean", false }, pp_seq_len = { "integer" },
  pp_recv_buffer_pool = { "boolean", true }, pp_recv_buffer_pool_slack = { "integer", 2 },
}

-- Schedules by torch's name in lower case. Each has Tandem's name, "single" or "multi" (one or
-- several stages on a rank), and the placement if the schedule fixes it.
local schedules = {
  ["1f1b"] = { "1f1b", "single" }, gpipe = { "gpipe", "single" },
  interleaved1f1b = { "interleaved_1f1b", "multi" },
  zbvzerobubble = { "zb_v", "multi", "v" }, dualpipev = { "dualpipe_v", "multi", "v" },
}
local absent = { loopedbfs = true, interleavedzerobubble = true }
local path = "distributed.pipeline"

local function schedule_of(d, given)
  local name = given.pp_schedule
  if name == nil then name = "1f1b" end -- Automodel's default; `false` means YAML's null
  if not name and not given.pp_schedule_csv then
    d:error("pp-schedule-missing", path .. ".pp_schedule",
      "pipeline: neither pp_schedule nor pp_schedule_csv gives the order of stages",
      "pp_schedule = \"1f1b\"")
    return nil
  end
  if not name then return { nil, "multi" } end -- a file defines the schedule; a rank then has two or more stages
  local key = tostring(name):lower():gsub("_", "")
  if schedules[key] then return schedules[key] end
  if absent[key] then
    d:error("dialect-unsupported", path .. ".pp_schedule",
      ("pp_schedule = '%s': this version does not support that schedule"):format(tostring(name)),
      "Interleaved1F1B and 1F1B are the most similar; or list the actions in a file, pp_schedule_csv")
  else
    d:error("unknown-word", path .. ".pp_schedule", ("pp_schedule = '%s' is not known"):format(tostring(name)),
      "one of: 1F1B, GPipe, Interleaved1F1B, ZBVZeroBubble, DualPipeV")
  end
  return nil
end

-- Returns the number of virtual stages of all ranks together, or nil after an error: ceil(layers /
-- layers_per_stage), rounded to a multiple of pp if the recipe says so.
local function virtual_stages(d, layers, pp, given, schedule)
  local per_stage, round = given.layers_per_stage, given.round_virtual_stages_to_pp_multiple
  local single = schedule[2] == "single"
  if not per_stage then return pp * (single and 1 or 2) end
  local at = path .. ".layers_per_stage"
  if per_stage < 1 then
    d:error("out-of-range", at, ("layers_per_stage = %d must be at least 1"):format(per_stage))
    return nil
  end
  local stages = (layers + per_stage - 1) // per_stage
  local told = ("%d layers in stages of %d are %d virtual stages over pp = %d"):format(layers, per_stage, stages, pp)
  if stages % pp ~= 0 then
    if round == "up" then
      stages = stages + pp - stages % pp
    elseif round == "down" then
      stages = stages - stages % pp
    elseif round then
      d:error("unknown-word", path .. ".round_virtual_stages_to_pp_multiple",
        ("Invalid value for round_to_pp_multiple: '%s'"):format(tostring(round)), "use 'up' or 'down'")
      return nil
    else
      d:error("virtual-stages", at, ("%s: their number must be divisible by pp_size"):format(told),
        "round_virtual_stages_to_pp_multiple = \"up\" or \"down\", or another layers_per_stage")
      return nil
    end
  end
  local each = stages // pp
  if single and each ~= 1 then
    d:error("virtual-stages", at, ("%s: a single-stage schedule requires exactly 1 stage a rank, not %d")
      :format(told, each), ("layers_per_stage = %d gives 1"):format((layers + pp - 1) // pp))
    return nil
  end
  if not single and each < 2 then
    d:error("virtual-stages", at, ("%s: a multi-stage schedule requires at least 2 stages a rank, not %d")
      :format(told, each), ("layers_per_stage = %d or lower gives 2"):format(math.max(1, layers // (2 * pp))))
    return nil
  end
  return stages
end

-- Returns the number of layers of each stage. The first stages take the remainder.
local function even_split(layers, stages)
  local split = {}
  for s = 1, stages do split[s] = layers // stages + (s <= layers % stages and 1 or 0) end
  return split
end

local function part_error(d, text, hint)
  d:error("pp-split", path .. ".module_fqns_per_model_part", "module_fqns_per_model_part: " .. text, hint)
end

-- Returns the number of layers of each part in an explicit list of modules. Every layer must occur
-- once, in order.
local function named_split(d, layers, pp, parts)
  local split, next_layer = {}, 0
  if #parts < 1 or #parts % pp ~= 0 then
    part_error(d, ("%d stages cannot be placed on pp = %d: their number must be a multiple of it, at least once")
      :format(#parts, pp), ("%d parts, or %d"):format(pp, 2 * pp))
    return nil
  end
  local first, last = {}, {}
  for s, part in ipairs(parts) do
    split[s] = 0
    for _, name in ipairs(part) do
      local layer = math.tointeger(tonumber(tostring(name):match "layers%.(%d+)$" or ""))
      if layer and layer ~= next_layer then
        part_error(d, ("part %d names layer %d where layer %d comes next"):format(s - 1, layer, next_layer))
        return nil
      end
      if layer then split[s], next_layer = split[s] + 1, next_layer + 1 end
      if tostring(name):match "embed_tokens$" then first[s] = true end
      if tostring(name):match "lm_head$" or tostring(name):match "norm$" then last[s] = true end
    end
  end
  if next_layer ~= layers then
    part_error(d, ("the parts hold %d layers, and the model has %d"):format(next_layer, layers))
    return nil
  end
  for s in pairs(first) do
    if s ~= 1 then part_error(d, ("part %d holds the embedding, which belongs to part 0"):format(s - 1)) end
  end
  for s in pairs(last) do
    if s ~= #parts then
      part_error(d, ("part %d holds the final norm or the head, which belong to part %d"):format(s - 1, #parts - 1))
    end
  end
  return split
end

-- Returns the options of pp{}, or nil after errors. layers: the number of layers of the model; nil:
-- unknown.
function pipeline.options(d, given, pp, layers, local_batch)
  local schedule = schedule_of(d, given)
  local micro = given.pp_microbatch_size
  if micro < 1 or local_batch % micro ~= 0 then
    d:error("divides-batch", path .. ".pp_microbatch_size",
      ("Batch size %d must be divisible by pp_microbatch_size = %d"):format(local_batch, micro),
      "sizes: " .. dialect.divisors(local_batch))
  end
  if given.pp_recv_buffer_pool_slack < 0 then
    d:error("out-of-range", path .. ".pp_recv_buffer_pool_slack",
      ("pp_recv_buffer_pool_slack must be >= 0, got %d"):format(given.pp_recv_buffer_pool_slack))
  end
  if not layers then
    d:error("missing-key", "hf", "pipeline: the model's number of layers is not known", "hf = { num_hidden_layers = 32 }")
    return nil
  end
  if not schedule then return nil end
  local split
  if given.module_fqns_per_model_part then
    split = named_split(d, layers, pp, given.module_fqns_per_model_part)
  else
    local stages = virtual_stages(d, layers, pp, given, schedule)
    if stages and (stages < 1 or stages > layers) then
      d:error("pp-layers", path, ("Number of stages (%d) cannot exceed number of layers (%d)"):format(stages, layers),
        ("use at most %d stages"):format(layers))
      return nil
    end
    split = stages and even_split(layers, stages)
  end
  if not split then return nil end
  local each = #split // pp
  if (schedule[2] == "single") ~= (each == 1) or (schedule[3] == "v" and each ~= 2) then
    d:error("virtual-stages", path, ("%d stages a rank (%d over pp = %d) do not fit the schedule '%s'"):format(each,
      #split, pp, schedule[1] or "of the file"), schedule[3] == "v" and "v schedules assume 2 stages a rank" or nil)
    return nil
  end
  if given.pp_schedule_csv then return { csv = given.pp_schedule_csv, chunks = each, split = split } end
  return { schedule = schedule[1], chunks = each, split = split }
end

return pipeline
