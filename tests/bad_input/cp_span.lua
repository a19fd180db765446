return plan {
  model = require "models.t5" "tiny",
  batch = { global = 12, seq = 64 }, mesh = { cp = 2 },
  parallel = { cp {} },
}
