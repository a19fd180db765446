return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 0, seq = 32 },
}
