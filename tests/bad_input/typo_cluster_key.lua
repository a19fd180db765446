return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  cluster = {
    name = "mine",
    node = 2,
    device = { name = "x" },
  },
}
