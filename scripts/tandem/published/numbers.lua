-- Reads numbers in cells of published training runs. They may have commas and units, and a batch
-- may be given in tokens.
local cells = require "tandem.published.cells"
local m = {}

-- Columns of sizes. Their numbers are large, and a cell never contains several of them.
local sizes = { d_model = true, d_ff = true, vocab = true, seq = true, global_batch_seqs = true }

-- Returns true if the commas in a number separate thousands, as in "14,336". In a column of counts,
-- commas may also separate several numbers ("8,128" GPUs). There, a comma certainly separates
-- thousands only if the digits after it begin with 0: "1,024".
function m.has_thousands(digits, key)
  local groups = digits:match "^%d%d?%d?(,.*)$"
  return groups and groups:gsub(",%d%d%d%f[%D]", "") == "" and (sizes[key] or groups:find "^,0") ~= nil
end

-- Returns n if the unit is "", and n Ki if it is "k". 33k, 65k, 131k, 262k and 524k are powers of
-- two in rounded thousands, so they give the power of two.
function m.scaled(n, unit)
  if unit == "" then return math.tointeger(n) end
  if n == 33 then return 32768 end
  for power = 16, 26 do
    local exact = (1 << power) / 1000
    if n == exact // 1 or power > 19 and n == (exact + 0.5) // 1 then return 1 << power end
  end
  return math.tointeger(n * 1024)
end

-- Returns true if the words after a number say that it counts the tokens of a step: "tokens",
-- "toks/step", "tokens per batch".
local function counts_tokens(text)
  text = text:gsub("^%s*%((tok%a*)%)", "%1"):gsub("^(%s*tok%a*[%s%a/]*)%([%d%.,~%s]*[kmb]?%s*t?o?k?e?n?s?%)%s*$", "%1")
  local rest = text:match "^%s*tokens?%f[%A](.*)$" or text:match "^%s*toks?%f[%A](.*)$"
  return rest ~= nil and (rest:find "^%s*$" or rest:find "^%s*/%s*step" or rest:find "^%s*per%s+step" or rest:find "^%s*per%s+batch" or rest:find "^%s*/%s*batch") ~= nil
end

-- Returns the number of sequences of a batch whose number of tokens is rounded: 256 sequences of
-- 8192 tokens for "2.1M". unit: 1e6 for M, 1e3 for k. The batch must be a multiple of the
-- micro-batches of all data ranks. Returns nil if no number fits, or several do.
local function rounded_batch(row, digits, unit)
  if cells.is_open(row.n_gpus) then return nil end
  local each, seq = math.max(1, cells.count(row, "n_gpus") // cells.replica(row)) * cells.count(row, "micro_batch", 1), tonumber(row.seq)
  local decimals = #(digits:match "%.(%d+)" or "")
  local n, half = tonumber(digits) * unit, unit / 10 ^ decimals / 2
  -- rounded to the nearest digit, or cut off after it ("1.048M")
  local function only(low, high)
    local first, last = math.ceil(low / seq / each), math.floor(high / seq / each)
    return first == last and first >= 1 and first or nil, last - first
  end
  local first, spare = only(n - half, n + half)
  if not first and spare < 0 then first = only(n, n + 2 * half - 1) end
  if not first then return nil end
  cells.note("the batch is rounded: %s; %d sequences are assumed", row.global_batch_seqs, first * each)
  return math.tointeger(first * each)
end

-- Reads a width in rounded thousands ("14.3k", "4.1k"): that of the model's public configuration, or the only multiple of 256 that
-- rounds to it. Widths in whole thousands count 1,024 (synonyms.lua).
function m.width(row, key, own)
  local digits = row[key]:lower():match "^%s*(%d+%.%d+)%s*k%s*$"
  if not digits then return end
  local decimals, found = #digits:match "%.(%d+)", nil
  local shape = ("%%.%df"):format(decimals)
  if own and shape:format(own / 1000) == digits then found = own end
  local n, half = tonumber(digits) * 1000, 500 / 10 ^ decimals
  for width = math.ceil((n - half) / 256) * 256, not found and n + half or 0, 256 do
    if shape:format(width / 1000) == digits then
      if found then cells.refuse("%s is rounded, and several widths agree with it: %s", key, row[key]) end
      found = math.tointeger(width)
    end
  end
  if not found then return end
  cells.note("%s is rounded: %s; %d is assumed", key, row[key], found)
  row[key] = tostring(found)
end

-- No batch has so many sequences, so a larger number counts tokens: "4M", "512K", "1048576".
local most_sequences = 100000
local function implies_tokens(row, n, unit, rest)
  local size = n * (unit == "m" and 1e6 or unit == "k" and 1e3 or 1)
  if size < most_sequences or not rest:find "^%s*$" then return false end
  cells.note("a batch of %s is taken as tokens", row.global_batch_seqs)
  return true
end

-- Reads a length of a sequence such as "1M", or a batch in tokens such as "4M tokens". The batch
-- must be a whole number of sequences, with M as 10^6 or as 2^20. If both readings give a whole
-- number, the two must be equal. Returns nil for any other cell.
function m.tokens(row, key)
  local cell = row[key]
  cell = cell:gsub("(%d)%s*([KMkm])i%f[%A]", function(n, unit) return n .. (unit:lower() == "k" and "*1024" or "*1048576") end)
  cell = cell:gsub("(%d[%d%.]*)%*(1%d+)", function(n, unit) return ("%d"):format(tonumber(n) * tonumber(unit) // 1) end) -- Ki, Mi
  local digits, unit, rest = cell:match "^%s*~?%s*(%d[%d,]*%.?%d*)%s*([kKmM]?)(.*)$"
  if not digits or digits:find "," and not m.has_thousands(digits, key) then return nil end
  local n, word = tonumber((digits:gsub(",", ""))), unit:lower()
  if key == "seq" and word == "m" and not rest:find "^%a" then return math.tointeger(n * (1 << 20)) end
  local words = rest:lower()
  if key == "micro_batch" and (word ~= "" or counts_tokens(words)) then
    local count = tonumber(row.seq or "") and math.tointeger(m.scaled(n, word) / tonumber(row.seq))
    return count and count > 0 and count or cells.refuse("%s is not known: %s", key, cell:sub(1, 60))
  end
  if key ~= "global_batch_seqs" or not tonumber(row.seq or "") then return nil end
  if not counts_tokens(words) and not implies_tokens(row, n, word, rest) then return nil end
  local seq, found = tonumber(row.seq), nil
  -- "1048k" and "1024k" are a power of two
  local binary = word == "k" and m.scaled(n, "k") or 0
  if word == "k" and (binary ~= n * 1024 or n >= 128 and binary & binary - 1 == 0) then n, word = binary, "" end
  for _, each in ipairs(word == "m" and { 1e6, 1 << 20 } or word == "k" and { 1e3, 1 << 10 } or { 1 }) do
    local count = math.tointeger(n * each / seq)
    if count and found and count ~= found then cells.refuse("%s is not known: %s", key, cell:sub(1, 60)) end
    found = count or found
  end
  if not found and word ~= "" then found = rounded_batch(row, (digits:gsub(",", "")), word == "m" and 1e6 or 1e3) end
  return found or cells.refuse("%s is not known: %s", key, cell:sub(1, 60))
end

return m
