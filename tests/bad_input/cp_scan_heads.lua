return plan {
  model = require "models.mamba2" { size = "tiny", groups = 1, heads = 7 },
  batch = { global = 12, seq = 64 }, mesh = { cp = 4 },
  parallel = { cp {} },
}
