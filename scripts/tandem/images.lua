-- Images in addition to tokens: patches of each sample's image, learned tokens in front of a
-- sequence, and the concatenation of two sequences.
local _, core = ...
local check = require "tandem.check"
local module = require "tandem.module"
local tensors = check.tensors
local op, param, use, new_module = module.op, module.param, module.use, module.new_module
local images = {}

function images.add(nn, known, standard)
  -- Returns the patches of the batch's images, [b, patches, channels x patch x patch]. nn.linear
  -- then computes the same embeddings as a convolution whose windows do not overlap.
  nn.image = core.wrap(function(options)
    local who = "nn.image"
    if type(options) ~= "table" then
      core.fail("wrong-type", who .. " needs a table", "nn.image { height = 224, width = 224, patch = 16 }")
    end
    check.options(who, options, known[who])
    local height, patch = check.count(who, "height", options.height), check.count(who, "patch", options.patch)
    local width, channels = check.count(who, "width", options.width, height), check.count(who, "channels", options.channels, 3)
    if height % patch ~= 0 or width % patch ~= 0 then
      core.fail("shape-mismatch", ("%s: an image of %d x %d points does not consist of whole patches of %d x %d"):format(who, height, width, patch, patch),
        ("height and width may be multiples of %d"):format(patch))
    end
    if patch > 512 or channels > 4096 or height // patch > 4096 or width // patch > 4096 then
      core.fail("out-of-range", ("%s: %d x %d points with %d channels in patches of %d"):format(who, height, width, channels, patch),
        "at most 4096 patches down and across, 4096 channels, patches of 512")
    end
    local made = core.images(height // patch, width // patch, patch, channels)
    return op("cast", nil, made)
  end)

  nn.lead_tokens = core.wrap(function(count, dim, options)
    local who = "nn.lead_tokens"
    count, dim = check.count(who, "count", count), check.count(who, "dim", dim)
    options = check.options(who, options, known[who])
    local info = { params = {} }
    local own = param(info, "weight", { count, dim }, { init = check.init(who, options.init, standard) })
    return new_module("lead_tokens", function(_, x)
      local id = check.tensor(who, "the input", x, 3)
      if x.shape[3] ~= dim then
        core.fail("shape-mismatch", ("%s(%d, %d) cannot be put before an input of shape %s"):format(who, count, dim,
          check.shape_text(x.shape)))
      end
      return op("lead_tokens", nil, use(own), id)
    end, {}, info)
  end)

  nn.join = core.wrap(function(a, b)
    local who = "nn.join"
    local first, last = check.tensor(who, "the first sequence", a, 3), check.tensor(who, "the second sequence", b, 3)
    if a.shape[3] ~= b.shape[3] then
      core.fail("shape-mismatch", ("%s: shapes %s and %s differ in their features"):format(who, check.shape_text(a.shape),
        check.shape_text(b.shape)))
    end
    return op("join_tokens", nil, first, last)
  end)

  nn.merge_tokens = core.wrap(function(x, count)
    local who = "nn.merge_tokens"
    local id = check.tensor(who, "the input", x, 3)
    count = check.within(who, "count", count, 1, 4096)
    if x.shape[2] % count ~= 0 then
      core.fail("shape-mismatch", ("%s: %d tokens are not a multiple of %d"):format(who, x.shape[2], count))
    end
    return op("merge_tokens", { count = count }, id)
  end)
end

return images
