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

local function fill(row, column, value) if cells.is_open(row[column]) then row[column] = value end end

function m.fill(row)
  local notes = in_force(row.notes or "")
  row.notes = notes
  for name, value in notes:gmatch "%-?%-?([%a][%w%-]*)=([^;]+)" do
    local column = columns[name:lower()]
    if column then fill(row, column, value:match "^%s*(.-)%s*$") end
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
end

return m
