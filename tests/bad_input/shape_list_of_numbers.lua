local nn = require "tandem.nn"
local l = nn.list { 1, 2 }
