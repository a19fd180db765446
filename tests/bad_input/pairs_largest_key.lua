-- The largest integer and the float after it are two keys.
local t, by_pairs, by_next = { [math.maxinteger] = 1, [2.0 ^ 63] = 2, [math.mininteger] = 3, x = 4 }, {}, {}
for _, value in pairs(t) do by_pairs[#by_pairs + 1] = value end
local key, value = next(t)
while key do
  by_next[#by_next + 1] = value
  key, value = next(t, key)
end
error(table.concat(by_pairs) .. " " .. table.concat(by_next))
