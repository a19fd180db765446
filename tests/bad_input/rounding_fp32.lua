return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  optimizer = adamw { lr = 1e-3, rounding = "stochastic" },
}
