return plan {
  model = require "models.mamba2" { size = "tiny", heads = 4, groups = 2 },
  batch = { global = 12, seq = 12 }, mesh = { cp = 6 },
  parallel = { cp {} },
}
