return plan {
  model = require "models.llama" { size = "tiny", layers = 5 }, batch = { global = 8, seq = 64 }, mesh = { pp = 2 },
  parallel = { pp { schedule = "zb_v", layers_per_stage = 5, round = "down" } },
}
