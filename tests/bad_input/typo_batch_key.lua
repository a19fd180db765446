return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, mirco = 1, seq = 32 },
}
