local t = setmetatable({}, { __len = function() return 1 << 40 end, __index = function() return "x" end })
return table.concat(t)
