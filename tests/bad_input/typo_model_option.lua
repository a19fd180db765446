return plan {
  model = require "models.llama" { size = "tiny", layer = 4 },
  batch = { global = 8, micro = 1, seq = 32 },
}
