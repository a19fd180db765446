-- The collector may remove entries of a weak table while pairs takes memory for its keys.
for round = 1, 400 do
  local weak = setmetatable({}, { __mode = "v" })
  for i = 1, 100 + 3 * round do weak["key" .. i] = { i } end
  for k in pairs(weak) do
    if type(k) ~= "string" or not k:find "^key%d+$" then error("a key that nobody wrote: " .. tostring(k)) end
    break
  end
end
error "finished"
