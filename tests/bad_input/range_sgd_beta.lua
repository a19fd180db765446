return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  optimizer = sgd { lr = 0.1, beta1 = 0.9 },
}
