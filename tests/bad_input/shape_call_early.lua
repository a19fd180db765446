local nn = require "tandem.nn"
local l = nn.linear(4, 4)
local x = nn.silu(l({}))
