local s = ("a"):rep(28)
return s:match(("a?"):rep(28) .. s)
