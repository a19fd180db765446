return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8,
