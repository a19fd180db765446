return plan {
  model = require "models.gpt2" "tiny",
  batch = { global = 12, seq = 64 }, mesh = { cp = 2 },
  parallel = { cp { mode = "all_to_all" } },
}
