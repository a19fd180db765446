return plan {
  model = require "models.mamba2" { size = "tiny", groups = 3 },
  batch = { global = 12, seq = 64 },
}
