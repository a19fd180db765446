return plan {
  model = require "models.llama" { size = "tiny", z_loss = "small" },
  batch = { global = 4, seq = 64 },
}
