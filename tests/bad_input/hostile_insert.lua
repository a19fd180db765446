table.insert(setmetatable({}, { __len = function() return math.maxinteger - 1 end }), 1, 0)
