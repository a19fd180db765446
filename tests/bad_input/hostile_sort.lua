local t = {}
for i = 1, 999999 do t[i] = i % 7 end
while true do table.sort(t, function(a, b) return true end) end
