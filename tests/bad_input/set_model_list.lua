return plan {
  model = require "models.phi" "3-128k-tiny",
  batch = { global = 8, micro = 1, seq = 32 },
}
