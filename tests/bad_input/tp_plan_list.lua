return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 }, mesh = { tp = 2 },
  parallel = { tp { plan = {
    "rowwise",
  } } },
}
