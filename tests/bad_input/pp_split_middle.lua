return plan {
  model = require "models.llama" { size = "tiny", layers = 4 }, batch = { global = 8, seq = 64 }, mesh = { pp = 4 },
  parallel = { pp { split = { 2, 0, 2, 0 } } },
}
