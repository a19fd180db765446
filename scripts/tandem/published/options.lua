-- Reads the options of Megatron in the cell `notes` ("moe-latent-size=1024; exp-avg-dtype=bf16").
-- An option fills the column of the same meaning if that column is empty.
local cells = require "tandem.published.cells"
local m = {}

-- The column that each option fills.
local columns = {
  ["moe-latent-size"] = "moe_latent", ["exp-avg-dtype"] = "exp_avg_dtype", ["mtp-num-layers"] = "mtp_layers", ["mamba-num-heads"] = "mamba_heads",
  ["num-distributed-optimizer-instances"] = "num_distopt_instances", ["expert-tensor-parallel-size"] = "etp", ["moe-ffn-hidden-size"] = "moe_ffn",
  ["moe-shared-expert-intermediate-size"] = "moe_shared_ffn", ["moe-layer-freq"] = "moe_layer_freq", ["kv-channels"] = "head_dim",
  ["pipeline-model-parallel-layout"] = "pipeline_layout", ["decoder-seq-length"] = "decoder_seq", ["decoder-num-layers"] = "decoder_layers",
  ["num-query-groups"] = "n_kv_heads", ["context-parallel-size"] = "cp", ["micro-batch-size"] = "micro_batch", ["seq-length"] = "seq", ["moe-router-topk"] = "moe_topk",
  ["hidden-dropout"] = "hidden_dropout", ["attention-dropout"] = "attention_dropout", ["recompute-granularity"] = "recompute_granularity",
  ["recompute-method"] = "recompute_method", ["recompute-num-layers"] = "recompute_num_layers", ["optimizer-offload-fraction"] = "offload_fraction",
  ["cp-comm-type"] = "cp_comm", ["num-layers-at-start-in-bf16"] = "first_bf16", ["num-layers-at-end-in-bf16"] = "last_bf16",
}

-- Other words for some of these options.
local words = { { "decoder seq (%d+)", "decoder_seq" }, { "decoder (%d+) layers", "decoder_layers" } }

-- Words at the start of a remark that deny all of it, and words that deny it up to the next option.
local denials, short_denials = { "^%s*not%s", "^%s*tried%s" }, { "^%s*no%s", "^%s*without%s", "^%s*w/o%s" }

-- Words that deny one option, or leave it unset: "--no-x", "x=False", "x (not used)".
local unset = { "^%s*%-*no%-", "=%s*false%s*$", "=%s*off%s*$", "=%s*none%s*$", "=%s*null%s*$", "=%s*default%s*$", "%f[%a]not%s+%a+%)?%s*$", "%f[%a]unused%)?%s*$",
  "%f[%a]disabled%)?%s*$" }

local function matches(text, patterns)
  for _, pattern in ipairs(patterns) do if text:lower():find(pattern) then return true end end
  return false
end

-- Returns the notes without the options that the run did not use, separated by ";".
local function in_force(notes)
  local kept = {}
  for remark in notes:gmatch "[^;]+" do
    local parts = matches(remark, denials) and "" or remark:gsub("[,%s]+(%-*%a[%w_%-]*=)", ";%1")
    for part in parts:gmatch "[^;]+" do
      if not matches(part, unset) and not matches(part, short_denials) then kept[#kept + 1] = part:match "^%s*(.-)%s*$" end
    end
  end
  return table.concat(kept, "; ")
end

local function fill(row, column, value)
  if cells.is_open(row[column]) then row[column] = value
  elseif tonumber(value) and tonumber(row[column]) and tonumber(value) ~= tonumber(row[column]) then
    cells.leave_out("an option gives %s = %s, but the cell gives %s, which counts", column, value, row[column])
  end
end

-- Options without a value, and the cell that each of them gives.
local switches = { ["swiglu"] = { "activation", "swiglu" }, ["squared-relu"] = { "activation", "squared-relu" }, ["overlap-grad-reduce"] = { "overlap_grad_reduce", "1" },
  ["untie-embeddings-and-output-weights"] = { "untie_embeddings", "1" }, ["overlap-param-gather"] = { "overlap_param_gather", "1" },
  ["use-distributed-optimizer"] = { "zero_stage", "1" } }

-- The stage that Megatron-FSDP calls by each name (--data-parallel-sharding-strategy).
local strategies = { no_shard = "0", optim = "1", optim_grads = "2", optim_grads_params = "3" }

-- Reads how FSDP shards: Megatron's own FSDP (--use-megatron-fsdp) and PyTorch's (--use-torch-fsdp2).
local function sharding(row, text)
  local name = text:match "data%-parallel%-sharding%-strategy[%s=:]+([%w_]+)"
  local stage = name and (strategies[name] or cells.refuse("data-parallel-sharding-strategy is not known: %s", name)) or text:find "use%-torch%-fsdp2" and "3"
  local own = cells.stage(row)
  if stage and cells.is_open(row.zero_stage) then row.zero_stage, own = stage, tonumber(stage) end
  if stage and tonumber(stage) ~= own then cells.refuse("zero_stage %s contradicts an option of FSDP, which gives stage %s", row.zero_stage, stage) end
  if not text:find "use%-megatron%-fsdp" then return end
  if own == nil then cells.refuse "use-megatron-fsdp is stated, but not the ZeRO stage" end
  if own < 2 then cells.leave_out("use-megatron-fsdp is left out: its stage %d is planned as Megatron's own", own) end
end

-- Reads options that keep states or activations in host memory. The other files then need not read
-- them again, so they are removed from the flags.
local function offloading(row, text)
  local n = tonumber(text:match "cpu%-offloading%-num%-layers[%s=:]+(%d+)")
  if n and n > 0 then fill(row, "offloaded_blocks", tostring(math.tointeger(n))) end
  row.flag = (row.flag or ""):gsub("%-*cpu[%-_]offloading[%-_]num[%-_]layers[%s=:]+%d+", "")
  local states = text:find "optimizer%-cpu%-offload" or text:find "optimizer[%-%s]+offload%a*%f[^%a%-]" or text:find "optimizer%s+states?%s+offload"
  if not states then return end
  local part = tonumber(row.offload_fraction or "") or 1
  if part ~= 1 then cells.refuse("optimizer-offload-fraction = %g is not modelled; only the whole optimizer can be in host memory", part) end
  fill(row, "offload", "optimizer")
end

function m.fill(row)
  local notes = in_force(row.notes or "")
  row.notes = notes
  for name, value in notes:gmatch "%-?%-?([%a][%w%-]*)=([^;]+)" do
    local column = columns[name:lower()]
    if column then fill(row, column, value:match "^%s*(.-)%s*$") end
  end
  for part in notes:gmatch "[^;]+" do
    local known = switches[part:match "^%s*%-*(.-)%s*$"]
    if known then fill(row, known[1], known[2]) end
  end
  for _, known in ipairs(words) do
    local value = notes:match(known[1])
    if value then fill(row, known[2], value) end
  end
  if notes:find "first%-last%-layers%-bf16" then
    fill(row, "first_bf16", "1")
    fill(row, "last_bf16", "1")
  else
    row.first_bf16, row.last_bf16 = nil, nil
  end
  local text = (notes .. "; " .. in_force(row.flag or "")):lower():gsub("_", "-"):gsub("optim%-grads", "optim_grads"):gsub("grads%-params", "grads_params"):gsub("no%-shard", "no_shard")
  sharding(row, text)
  offloading(row, text)
  row.narrow_weights = text:find "fp8%-param" and not text:find "fp8%-param[%-gather]*%s*[=:]%s*[0nf]" and "1" or nil
end

return m
