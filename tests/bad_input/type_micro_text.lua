return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = "one", seq = 32 },
}
