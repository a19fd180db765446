return plan {
  model = require "models.mamba2" { size = "tiny", heads = 8, groups = 4 },
  batch = { global = 12, seq = 64 }, mesh = { cp = 8 },
  parallel = { cp { mode = "ring" } },
}
