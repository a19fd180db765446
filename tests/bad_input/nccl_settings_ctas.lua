return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  nccl = { min_ctas = 8, max_ctas = 4 },
}
