local nn = require "tandem.nn"
return plan {
  model = { build = function()
    return nn.module { forward = function() while true do end end }
  end },
  batch = { seq = 4 },
}
