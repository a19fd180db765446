return plan {
  model = require "models.mamba2" { size = "tiny", groups = 1, state = 3 },
  batch = { global = 12, seq = 72 }, mesh = { cp = 4 },
  parallel = { cp {} },
}
