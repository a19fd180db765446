return plan {
  model = require "models.llama" "tiny",
  batch = { seq = 1 << 40 },
}
