return plan {
  model = require "models.nemotron_h" { size = "tiny", layers = "x" },
  batch = { global = 12, seq = 64 },
}
