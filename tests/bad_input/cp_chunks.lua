return plan {
  model = require "models.llama" "tiny",
  batch = { global = 12, seq = 66 }, mesh = { cp = 2, tp = 2 },
  parallel = { tp { sequence = true }, cp { mode = "all_gather" } },
}
