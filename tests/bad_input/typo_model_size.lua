return plan {
  model = require "models.llama" "3.1-8B",
  batch = { global = 8, micro = 1, seq = 32 },
}
