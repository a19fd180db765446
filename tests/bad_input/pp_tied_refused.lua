return plan {
  model = require "models.gpt2" { size = "tiny", layers = 2 }, batch = { global = 8, seq = 64 }, mesh = { pp = 2 },
  parallel = { pp { tied = "refuse" } },
}
