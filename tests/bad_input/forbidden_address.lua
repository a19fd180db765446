return plan { name = ("%p"):format({}) }
