string.dump(function() end)
