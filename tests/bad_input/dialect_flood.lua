-- More mistakes than anybody reads: the first of them, and that there are more.
local kf = require "dialects.kempnerforge"
local config = { world = 1 }
for i = 1, 100 do config["key" .. i] = i end
return kf(config)
