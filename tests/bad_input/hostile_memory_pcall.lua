local keep = {}
while true do pcall(function() keep[#keep + 1] = ("x"):rep(1 << 20) end) end
