local m = { __gc = true }
setmetatable({}, m)
m.__gc = function() while true do end end
