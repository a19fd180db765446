local function check(n)
  if n > 4 then error("n must be at most 4", 2) end
end
check(5)
return plan {}
