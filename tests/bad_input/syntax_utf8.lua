local café = 1
return plan {}
