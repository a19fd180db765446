return plan {
  model = require "models.nemotron_h" { size = "tiny", layers = 2.5 },
  batch = { global = 12, seq = 64 },
}
