return plan {
  model = require "models.nemotron_h" { size = "tiny", layers = -3 },
  batch = { global = 12, seq = 64 },
}
