local s = ("a"):rep(60000)

return s:match((".-"):rep(6) .. "b")
