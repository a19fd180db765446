local t = { micro = 1 }
t.again = t
return plan { batch = t }
