local s = string.rep()
return plan {}
