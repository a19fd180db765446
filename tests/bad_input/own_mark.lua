return plan {
  model = require "models.llama" { size = "tiny", layers = 4 }, batch = { global = 2, seq = 64 }, mesh = { pp = 2 },
  parallel = { pp { csv = "own_mark.csv" } },
}
