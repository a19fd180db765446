-- Remarks in cells that are not about the run: what it is compared with, the default of an option, a resemblance.
local cells = require "tandem.published.cells"
local m = {}

-- Cells in words that may have such remarks.
local keys = { "framework", "model", "n_gpus", "global_batch_seqs", "seq", "optimizer", "precision", "ac", "zero_stage", "compile", "sp", "attention_backend", "moe_dispatcher", "fp8_recipe", "cuda_graph", "activation",
  "normalization", "overlap_tp", "overlap_ep", "overlap_grad_reduce", "overlap_param_gather", "grad_reduce_in_bf16", "exp_avg_dtype", "cross_entropy_fusion",
  "moe_grouped_gemm", "pp_schedule", "transformer_impl", "micro_batch", "tp", "pp", "cp", "ep", "vp" }

-- Words that begin a comparison with another run. denies: true if the run does not have the value after these words.
local comparisons = { { "vs%f[%A]%.?" }, { "versus%f[%A]" }, { "compared%s+%a+%f[%A]" }, { "instead%s+of%f[%A]", denies = true }, { "rather%s+than%f[%A]", denies = true },
  { "as%s+opposed%s+to%f[%A]", denies = true } }

-- Returns a cell without comparisons: "AdamW (vs Muon)" and "AdamW instead of Muon" become "AdamW". "full vs selective" may
-- describe two runs, so it is refused.
local function uncompared(key, text)
  for _, known in ipairs(comparisons) do
    local at = text:lower():find("%f[%a]" .. known[1])
    if at then
      local open, close = text:sub(1, at - 1):find "[%(%[][^%)%]]*$", text:find("[%)%]]", at)
      local before = text:sub(1, (open or at) - 1):match "^(.-)[%s,;%-]*$"
      local apart = open or known.denies or text:sub(1, at - 1):find "[,;]%s*$"
      if before ~= "" and not apart then cells.refuse("%s compares two values: %s", key, text:sub(1, 60)) end
      if before ~= "" then text = before .. (open and close and text:sub(close + 1) or "") end
    end
  end
  return text
end

-- Returns a cell without the value that an option has by default: "enable-cuda-graph (default off)". "(default)" alone says that the
-- run has the default, so it stays.
local function without_default(text)
  return (text:gsub("^(.*%S)%s*[%(%[]%s*[dD]efault%s*[:=]?%s*%w[^%)%]]*[%)%]]", "%1"))
end

-- Words before another framework that the row's framework only resembles.
local likenesses = { "in%s+the%s+style%s+of%s", "inspired%s+by%s", "similar%s+to%s", "modell?ed%s+%a+%s", "like%s", "unlike%s" }

-- Removes from the name of a framework another framework that it only resembles: "Megatron-style PyTorch", "PyTorch (Megatron-like TP)",
-- "PyTorch, similar to Megatron".
local function without_likeness(text)
  for _, words in ipairs(likenesses) do
    local at = text:lower():find("%f[%w%-]" .. words)
    if at then text = text:sub(1, at - 1):gsub("[%s,;%(%[]+$", "") .. (text:match("[%)%]](.*)$", at) or "") end
  end
  local kept = text:gsub("[%a][%w%-]*[%s%-][sS]tyle%f[%A]%s*", ""):gsub("[%a][%w%-]*%-[lL]ike%f[%A]%s*", ""):gsub("[%a][%w%-]*%-[iI]nspired%f[%A]%s*", "")
  return kept:match "%w" and kept or "unnamed"
end

-- Removes such remarks from the cells of a row.
function m.remove(row)
  for _, key in ipairs(keys) do
    if not cells.is_open(row[key]) then row[key] = without_default(uncompared(key, row[key])) end
  end
  row.framework = without_likeness(row.framework)
end

return m
