return plan {
  model = require "models.llama" { size = "tiny", label_smoothing = -0.1 },
  batch = { global = 4, seq = 64 },
}
