return plan {
  model = require "models.llama" "tiny",
  batch = { global = 2, seq = 16 }, lr = 1e-3, min_ctas = 4, tp = 2,
}
