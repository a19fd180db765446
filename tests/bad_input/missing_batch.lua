return plan {
  model = require "models.llama" "tiny",
}
