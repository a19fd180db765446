return plan { [function() end] = 1 }
