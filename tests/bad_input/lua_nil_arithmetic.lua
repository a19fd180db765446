local config = { hidden = 8 }
local n = config.hiden * 2
return plan {}
