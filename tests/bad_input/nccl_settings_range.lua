return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  nccl = { max_ctas = 65, min_cta = 1 },
}
