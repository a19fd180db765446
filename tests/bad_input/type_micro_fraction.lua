return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1.5, seq = 32 },
}
