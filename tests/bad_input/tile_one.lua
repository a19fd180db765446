return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  parallel = { tile { pieces = 1 } },
}
