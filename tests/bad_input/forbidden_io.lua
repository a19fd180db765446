io.open("owned", "w")
