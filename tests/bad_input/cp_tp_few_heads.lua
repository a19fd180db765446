return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 12, seq = 64 }, mesh = { cp = 4, tp = 2 },
  parallel = { tp { sequence = true }, cp "all_to_all" },
}
