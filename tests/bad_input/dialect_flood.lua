-- Too many mistakes to read: the first ones are reported, and a line says that there are more.
local kf = require "dialects.kempnerforge"
local config = { world = 1 }
for i = 1, 100 do config["key" .. i] = i end
return kf(config)
