-- Rotary positions of a sequence with an image (Qwen2-VL, arXiv 2409.12191). In a decoder, the
-- position of a token is a time, a row and a column. The pairs of elements form three sections: the
-- first turns by time, the second by row, the third by column. In an encoder, half of the pairs
-- turn by the row of a patch and half by its column.
local _, core = ...
local check = require "tandem.check"
local rope_image = {}

local keys = { rows = true, columns = true, first = true, sections = true, block = true }
local most_side, most_block = core.most_of("rope", "rows"), core.most_of("rope", "count")
local most_first = core.most_of("rope", "first")
local example = "{ rows = 8, columns = 8, first = 5, sections = { 16, 24, 24 } }; an encoder: { rows = 16, columns = 16, block = 2 }"

function rope_image.read(who, image)
  check.options(who .. " image", image, keys)
  local own = { rows = check.within(who, "rows", image.rows, 1, most_side),
    columns = check.within(who, "columns", image.columns, 1, most_side) }
  if (image.sections == nil) == (image.block == nil) then
    core.fail("missing-key", who .. ": an image needs sections (for a decoder) or block (for an encoder), but not both", example)
  end
  if image.block ~= nil then
    own.block = check.within(who, "block", image.block, 1, most_block)
    if own.rows % own.block ~= 0 or own.columns % own.block ~= 0 then
      core.fail("shape-mismatch", ("%s: %d x %d patches cannot be divided into blocks of %d x %d"):format(who, own.rows, own.columns,
        own.block, own.block))
    end
    if image.first ~= nil then core.fail("out-of-range", who .. ": the sequence of an encoder is only its image", "leave out first") end
    return own
  end
  own.first = check.within(who, "first", image.first == nil and 0 or image.first, 0, most_first)
  if type(image.sections) ~= "table" or #image.sections ~= 3 then
    core.fail("wrong-type", who .. ": sections must be three numbers of pairs: those rotated by time, by row and by column", example)
  end
  own.sections = {}
  for i = 1, 3 do own.sections[i] = check.count(who, "a section", image.sections[i]) end
  return own
end

-- Adds to `attrs` the attributes for queries or keys of this shape, [b, s, ..., d]. turned: the
-- number of elements of a head that are rotated.
function rope_image.add(who, attrs, image, shape, turned)
  local tokens, pairs_that_turn, first = shape[2], turned // 2, image.first or 0
  local time, down = 0, pairs_that_turn // 2
  if image.block then
    if tokens ~= image.rows * image.columns or pairs_that_turn % 2 ~= 0 then
      core.fail("shape-mismatch", ("%s: %d tokens and %d pairs for %d x %d patches"):format(who, tokens, pairs_that_turn,
        image.rows, image.columns), "an encoder needs one token for each patch, and an even number of pairs")
    end
  else
    local s = image.sections
    time, down = s[1], s[2]
    if s[1] + s[2] + s[3] ~= pairs_that_turn then
      core.fail("shape-mismatch", ("%s: sections %d + %d + %d must add up to the %d rotated pairs"):format(who, s[1], s[2], s[3],
        pairs_that_turn))
    end
    if first + image.rows * image.columns > tokens then
      core.fail("out-of-range", ("%s: %d x %d tokens of an image from token %d on, in a sequence of %d"):format(who,
        image.rows, image.columns, first, tokens))
    end
  end
  attrs.rows, attrs.columns, attrs.first, attrs.count = image.rows, image.columns, first, image.block
  attrs.lo, attrs.hi = time, time + down
end

return rope_image
