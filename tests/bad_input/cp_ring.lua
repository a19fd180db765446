return plan {
  model = require "models.gemma" "2-tiny",
  batch = { global = 12, seq = 64 }, mesh = { cp = 2 },
  parallel = { cp { mode = "ring" } },
}
