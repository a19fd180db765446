local nn = require "tandem.nn"
return plan {
  model = { build = function()
    return nn.module { e = nn.embedding(4, 4), froward = function() end }
  end },
  batch = { seq = 4 },
}
