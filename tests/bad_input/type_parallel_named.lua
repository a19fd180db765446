return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  mesh = { tp = 2 },
  parallel = { tp = { sequence = true } },
}
