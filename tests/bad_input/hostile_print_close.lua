local line <close> = setmetatable({}, { __close = function() while true do print("x") end end })
error "first"
