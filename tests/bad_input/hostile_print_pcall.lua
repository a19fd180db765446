local line = string.rep("x", 1000)
while true do pcall(print, line) end
