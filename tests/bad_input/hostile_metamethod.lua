local t = setmetatable({}, {})
getmetatable(t).__index = function(_, k) return t[k .. "a"] end
return t.x
