return plan {
  model = require "models.gpt2" { size = "tiny", dropout = 1 },
  batch = { global = 4, seq = 64 },
}
