return plan {
  model = require "models.llama" "tiny",
  batch = 8,
}
