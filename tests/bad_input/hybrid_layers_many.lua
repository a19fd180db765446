return plan {
  model = require "models.nemotron_h" { size = "tiny", layers = 1e9 },
  batch = { global = 12, seq = 64 },
}
