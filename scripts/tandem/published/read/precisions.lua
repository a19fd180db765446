-- Precisions of published training runs that more than one cell or number gives: layers that stay in 16 bits, and narrow types in the
-- cell `flag`.
local cells = require "tandem.published.cells"
local m = {}

-- Returns the numbers of layers at the end and at the start that a text excepts from narrow types: "first 1 and last 2 layers",
-- "first/last 2 layers", "first and last layers" (one each).
function m.wide_layers(text)
  local each = text:match "first%s*[/&]%s*last%s*(%d*)%s*layer" or text:match "first%s+and%s+last%s*(%d*)%s*layer"
  if each == "" then each = "1" end
  if each then return each, each end
  if not text:find "layer" then return nil, nil end
  local found = {}
  for word, n, after in text:gmatch "(%a+)%s+(%d+)%s*([%%%.]?)" do if after == "" then found[word] = n end end -- not "last 15% of layers"
  return found.last, found.first
end

-- Words that may stand beside the name of a narrow type in the cell `flag`: "float8 rowwise enabled".
local narrow_words = { enabled = true, enable = true, on = true, ["true"] = true, ["1"] = true, yes = true, training = true, linear = true, linears = true, with = true,
  use = true, gemm = true, gemms = true, recipe = true, scaling = true, tensorwise = true, rowwise = true, blockwise = true, delayed = true, hybrid = true }
local narrow_names = { float8 = true, fp8 = true, mxfp8 = true, nvfp4 = true }

-- If the cell `flag` names a narrow type and the precision is bf16, the products have the narrow type, as with torchtitan's
-- converter float8.
function m.take_flag(row)
  if cells.is_float8(row) or cells.is_float4(row) then return end
  for part in (row.flag or ""):lower():gmatch "[^;,+]+" do
    local name, plain
    for word in part:gmatch "[%w]+" do
      if narrow_names[word] then plain, name = not name, word elseif not narrow_words[word] then plain = false break end
    end
    if name and plain then
      if not cells.is_open(row.precision) and not row.precision:lower():find "^%s*bf" and not row.precision:lower():find "mixed" then
        cells.refuse("precision and flag do not agree: %s, %s", row.precision, part)
      end
      row.precision = part
      cells.note("the cell flag names the precision: %s", part)
    end
  end
end

return m
