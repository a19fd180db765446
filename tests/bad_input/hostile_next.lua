local t, k = {}, nil
for i = 1, 1e5 do t[i] = i end
repeat k = next(t, k) until k == nil
