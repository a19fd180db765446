local p = plan { batch = { seq = 4 } }
