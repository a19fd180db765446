return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  nccl = { register = "buffer", cta_policy = "zero" },
}
