return plan {
  model = require "models.llama" "tiny",
  batch = { global = "8", micro = true, seq = 32 },
  mesh = { tp = "two" },
  precision = { compute = 16 },
  stepz = 4,
}
