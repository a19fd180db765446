return plan {
  model = require "models.llama" "tiny",
  batch = { global = 2, seq = 16 }, mesh = { dp = 2 }, tp = 4, parallel = { tp { loss = true } },
}
