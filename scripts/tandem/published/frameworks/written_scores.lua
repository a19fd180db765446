-- Attention that writes its scores to memory, in published runs of frameworks that leave attention to
-- their model's code. Megatron's rules are in megatron.lua.
local cells, releases, gpus = require "tandem.published.cells", require "tandem.published.releases", require "tandem.gpus"
local has = cells.has
local m = {}

-- Words for kernels of attention that write no scores.
local fused = { "flash", "%f[%a]fa[_%-]?[234]", "xformers", "sdpa", "memory%-?%s?efficient%s+att", "cudnn%s+att", "triton%s+att" }

-- Returns true if a cell names such a kernel.
local function names_kernel(row)
  for _, key in ipairs { "framework", "flag", "notes", "fusions", "environment" } do
    for _, word in ipairs(fused) do if cells.affirms(row[key], word) then return true end end
  end
  return false
end

-- Returns true if the row names attention that writes scores: "unfused", "eager", "math".
function m.are_stated(row)
  for _, word in ipairs { "unfused", "eager", "%f[%a]math%f[%A]" } do if cells.affirms(row.attention_backend, word) then return true end end
  return false
end

-- Returns true if DeepSpeed's release is older than December 2023. kind: source; DeepSpeed's tags
local function is_old_deepspeed(name)
  local major, minor = name:match "deepspeed[%s_%-]*v?(%d+)%.(%d+)"
  return major == "0" and tonumber(minor) < 12
end

-- Returns true if models of Hugging Face write scores in this row. They do before transformers 4.36
-- (December 2023), which calls PyTorch's scaled_dot_product_attention. A row that names no release and
-- no date is assumed to be newer, except on GPUs older than Ampere.
-- kind: documented; transformers' release notes of 4.36
function m.of_transformers(row)
  if m.are_stated(row) then return true end
  if not cells.is_open(row.attention_backend) or names_kernel(row) then return false end
  local name = row.framework:lower()
  local major, minor = name:match "transformers%s*v?(%d+)%.(%d+)"
  if major then return tonumber(major) * 100 + tonumber(minor) < 436 end
  if name:find "torch%s*v?1%.%d" or is_old_deepspeed(name) or releases.is_before(row, "2023-12") then return true end
  local gpu = gpus.gpus[gpus.find(row.gpu) or ""]
  if not gpu or gpu.arch ~= "Volta" or releases.month(row) then return false end
  cells.note("the row names no date; attention is assumed to write its scores on %s", row.gpu)
  return true
end

-- Returns true if a framework of before 2023 writes scores in this row: it says nothing else, and no
-- newer date.
function m.of_old_framework(row)
  if not cells.is_open(row.attention_backend) or names_kernel(row) then return false end
  local year = tonumber(row.framework:match "%f[%d](20%d%d)%f[%D]" or (row.framework_month or ""):match "20%d%d")
  return not year or year < 2023
end

-- Models that train with dropout.
local dropped = { "^gpt", "bert", "^opt", "^t5", "bloom", "^megatron", "^turing" }
function m.trains_without_dropout(row)
  for _, name in ipairs(dropped) do if has(row, "model", name) then return false end end
  return true
end

-- Returns the bytes that are saved for each score. With dropout, they are the softmax, its mask and the
-- masked softmax, of 2, 1 and 2 bytes. Models of Hugging Face that train without dropout compute the
-- softmax in fp32 and cast it (modeling_llama.py: eager_attention_forward): 4 and 2 bytes.
local function bytes_of(row)
  return m.trains_without_dropout(row) and 6 or 5
end

-- Changes what a framework's function returned, so that attention writes its scores. bytes: those saved
-- for each score. The numbers of kernels are Megatron's without flash attention (runtimes/megatron2022.lua).
function m.write(row, how, bytes)
  local ops = {}
  for name, op in pairs(how.ops or {}) do ops[name] = op end
  ops.attention = { kernels = 8, passes = 1, scores = bytes or bytes_of(row) }
  ops.attention_grad = { kernels = 12, passes = 1 }
  how.ops, how.scores = ops, true
  return how
end

return m
