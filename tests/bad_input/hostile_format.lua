local s = ("%99999d"):format(1)
