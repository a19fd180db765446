-- The month of a framework in a row of published training runs, and behaviour that depends on it.
local cells = require "tandem.published.cells"
local has = cells.has
local m = {}

local names = { jan = 1, feb = 2, mar = 3, apr = 4, may = 5, jun = 6, jul = 7, aug = 8, sep = 9, oct = 10, nov = 11, dec = 12 }

-- Returns the month in a text ("2025-04", "2025/4", "Apr 2025", "2.8.0.dev20250401") as "2025-04",
-- or nil if it has none.
local function month_in(text)
  local year, month = text:match "%f[%d](20%d%d)[%-/%.](%d%d?)%f[%D]"
  if not year then year, month = text:match "%f[%d](20%d%d)([01]%d)[0-3]%d%f[%D]" end
  if not year then
    local name
    name, year = text:match "%f[%a](%a%a%a)%a*%.?,?%s+(20%d%d)%f[%D]"
    month = name and names[name]
  end
  local n = tonumber(month)
  return n and n >= 1 and n <= 12 and ("%s-%02d"):format(year, n) or nil
end

-- The months of PyTorch's releases. kind: documented; PyTorch's release notes
local torch = { ["2.0"] = "2023-03", ["2.1"] = "2023-10", ["2.2"] = "2024-01", ["2.3"] = "2024-04", ["2.4"] = "2024-07", ["2.5"] = "2024-10",
  ["2.6"] = "2025-01", ["2.7"] = "2025-04", ["2.8"] = "2025-08", ["2.9"] = "2025-10" }

-- The last years of Megatron-LM's releases 1, 2 and 3. kind: source; the tags of Megatron-LM's repository
local megatron = { ["1"] = "2020", ["2"] = "2022", ["3"] = "2022" }

-- Returns the month of the row's framework ("2025-04"), or nil if the row does not say. The number
-- of a NeMo release is its month. If the row names only PyTorch's release, that release's month
-- counts.
function m.month(row)
  local name = row.framework:lower()
  local year, month = name:match "^nemo.-%f[%d](2%d)%.(%d%d)%f[%D]"
  return month_in((row.framework_month or ""):lower()) or month_in(name) or year and ("20%s-%s"):format(year, month) or
    torch[name:match "torch%s*v?(2%.%d+)" or ""] or megatron[name:match "^megatron%-lm[%s%(]+v?([123])%.%d" or ""] or
    m.megatron_image(name)
end

-- Returns the month of Megatron-LM's tags 23.04 to 24.01, which are months; nil for any other name.
function m.megatron_image(name)
  local year, month = name:match "^megatron%-lm[%s%(]+v?(2%d)%.([01]%d)%f[%D]"
  return year and ("20%s-%s"):format(year, month) or nil
end

-- Removes the release of a container in which the framework ran: "NGC PyTorch 24.01", "nvcr.io/nvidia/pytorch:24.01-py3",
-- "jax-stable-stack 2024.10". The framework in it may have another month.
local function without_container(name)
  for _, image in ipairs { "pytorch", "jax%-stable%-stack", "jax" } do name = name:gsub(image .. "[%s:/_%-]+2?0?2%d%.[01]%d%f[%D][%w%.%-]*", " ") end
  return name
end

-- Returns the month of the framework itself ("2025-04"), or its year if no month is known; nil: neither is known.
local function own_date(row)
  local bare = setmetatable({ framework = without_container(row.framework:lower()):gsub("torch%s*v?2%.%d+", "torch") }, { __index = row })
  local year = "%f[%d]20%d%d%f[%D]"
  return m.month(bare) or (row.framework_month or ""):match(year) or bare.framework:match(year)
end

-- Tells `tandem accuracy` the framework of the row, and its date (cli/accuracy/rates.c).
function m.tell(row) cells.note_framework(("%s %s"):format(own_date(row) or "-", row.framework)) end

-- Returns true if the row's framework is from before this month. The row may give only a year. A
-- framework without a date counts as newer.
function m.is_before(row, month)
  local year = "%f[%d]20%d%d%f[%D]"
  local own = m.month(row) or (row.framework_month or ""):match(year) or row.framework:match(year)
  return own ~= nil and own < month:sub(1, #own)
end

-- Returns true if the row's PyTorch prefers FlashAttention-2 to cuDNN's attention on Hopper and
-- Blackwell, as it did before release 2.11 (sdp_utils.cpp: check_prefer_cudnn_attention). A row
-- that states no release is assumed to have an older one.
function m.prefers_flash(row)
  local major, minor = row.framework:lower():match "torch%s*v?(%d+)%.(%d+)"
  if major then return tonumber(major) * 100 + tonumber(minor) < 211 end
  local month = m.month(row)
  return not month or month < "2026-03"
end

-- Returns true if the pipeline sends each message by a separate call, and PyTorch comes from an
-- NVIDIA image since 25.09 (PyTorch 2.9). Megatron sends single messages in interleaved pipelines,
-- where it overlaps them. In other pipelines, and with --no-overlap-p2p-communication, one call
-- sends all messages to and from a stage (core/pipeline_parallel/p2p_communication.py: _p2p_ops,
-- _batched_p2p_ops). With these images, the host takes less time for such a message. We do not know
-- the reason. Runs on H100 contradict it: this shorter time makes their predictions worse.
function m.sends_singly(row)
  for _, key in ipairs { "flag", "notes", "pp_schedule" } do
    if has(row, key, "no[%s_%-]overlap[%s_%-]p2p") or has(row, key, "overlap[%s_%-]p2p[%a_%-]*[%s:=]+[f0n]") then return false end
  end
  local image = row.framework:match "NGC PyTorch (%d%d%.%d%d)"
  return image ~= nil and image >= "25.09" and cells.count(row, "vp", 1) > 1
end

-- Returns the attention kernel that the row states, or nil if it states none or leaves the choice
-- to its framework.
function m.attention(row)
  local cell = (row.attention_backend or ""):lower()
  if has(row, "framework", "^megatron") and cell:find "^use%-flash" then return nil end -- --use-flash-attn does not choose among Transformer Engine's kernels
  if cell:find "unfused" or cell:find "^local" or cell:find "^math" or cell:find "^eager" then return "unfused" end
  if cell:find "fused" or cell:find "cudnn" then return "cudnn" end
  if cell:find "flash.*3" or cell:find "fa[_%-]?3" then return "flash3" end
  if cell:find "triton" then return "triton" end
  if cell:find "flex" or cell:find "flash.*4" or cell:find "fa[_%-]?4" or cell:find "xformers" or cell:find "efficient" then
    cells.note("the framework's usual attention is planned instead of %s", row.attention_backend)
    return nil
  end
  return (cell:find "flash" or cell:find "fa[_%-]?2") and "flash2" or nil
end

return m
