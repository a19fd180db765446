return plan {
  model = require "models.llama" "tiny",
  batch = { global = 2, micro = 1, seq = 32 },
}
