local t = { table.unpack({}, 1, 1e6) }
