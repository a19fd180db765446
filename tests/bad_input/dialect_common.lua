-- NaN, infinity, a text and 0 have no divisors, so the greatest common divisor skips them.
local dialect = require "tandem.dialect"
local n = dialect.common(0/0, 12, 1/0, "9", 0, 8.0, nil, 2.5, 20)
error(("of 12, 8 and 20: %d; of a number that is none: %d"):format(n, dialect.common(0/0)))
