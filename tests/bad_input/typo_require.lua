return plan {
  model = require "models.lama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
}
