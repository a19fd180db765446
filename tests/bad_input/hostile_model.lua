local nn = require "tandem.nn"
return plan {
  model = { build = function()
    return nn.module {
      e = nn.embedding(4, 4),
      forward = function(m, t, y)
        local x = m.e(t)
        while true do x = x + x end
      end,
    }
  end },
  batch = { seq = 4 },
}
