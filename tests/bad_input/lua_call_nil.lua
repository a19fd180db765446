local t = {}
t.go()
return plan {}
