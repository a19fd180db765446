local n = 1 // 0
return plan {}
