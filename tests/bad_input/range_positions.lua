return plan {
  model = require "models.gpt2" "tiny",
  batch = { seq = 512 },
}
