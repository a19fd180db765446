return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  optimizer = adamw { learning_rate = 1e-3, beta_1 = 0.9 },
}
