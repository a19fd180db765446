return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 12, seq = 64 }, mesh = { cp = 2 },
  parallel = { cp { mode = "gather" } },
}
