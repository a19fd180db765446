return plan {
  model = require "models.gpt2" "tiny", batch = { global = 4, seq = 64 }, mesh = { tp = 2 },
  parallel = { tp { plan = {
    wte = "colwise",
    head = "colwise",
  } } },
}
