return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 12, seq = 63 }, mesh = { cp = 2 },
  parallel = { cp { mode = "all_to_all" } },
}
