return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 12, seq = 64 }, mesh = { cp = 4 },
  parallel = { cp { mode = "all_to_all", all_to_all = 2 } },
}
