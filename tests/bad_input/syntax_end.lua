local function f()
  if true then
  return 1
end
return plan {}
