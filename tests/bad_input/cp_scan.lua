return plan {
  model = require "models.nemotron_h" "tiny",
  batch = { global = 12, seq = 64 }, mesh = { cp = 4 },
  parallel = { cp { mode = "ring", all_to_all = 2 } },
}
