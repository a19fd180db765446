return plan {
  model = require "models.llama" "tiny", batch = { global = 8, seq = 64 },
  optimizer = sgd { lr = 1e-3, state = "bf16" },
}
