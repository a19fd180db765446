return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  precision = { param = "fp32", comptue = "fp32" },
}
