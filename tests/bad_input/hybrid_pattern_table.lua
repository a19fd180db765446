return plan {
  model = require "models.nemotron_h" { size = "tiny", pattern = {} },
  batch = { global = 12, seq = 64 },
}
