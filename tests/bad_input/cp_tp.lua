return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 12, seq = 64 }, mesh = { cp = 2, tp = 2 },
  parallel = { tp { sequence = true }, cp { mode = "all_to_all" } },
}
