return plan {
  model = require "models.llama" { size = "tiny", layers = 4 }, batch = { global = 2, seq = 64 }, mesh = { pp = 2 },
  parallel = { pp { schedule = function() local r = { [0] = { "F0.0", "F0.1", "B0.0", "B0.1" }, [1] = { "F1.0", "B1.0", "F1.1", "B1.1" } } r[1][2000] = "F0.0" return r end } },
}
