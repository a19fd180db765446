local s = ("a"):rep(60000):gsub("a", function() error("in a callback") end)
