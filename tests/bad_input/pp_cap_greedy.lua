return plan {
  model = require "models.llama" { size = "tiny", layers = 8 }, batch = { global = 16, seq = 64 }, mesh = { pp = 4 },
  parallel = { pp { schedule = "greedy_v", cap = 6 } },
}
