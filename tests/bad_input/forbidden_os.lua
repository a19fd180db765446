os.execute("touch owned")
