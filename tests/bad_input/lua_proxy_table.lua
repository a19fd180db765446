return plan { batch = setmetatable({}, { __index = function() while true do end end }) }
