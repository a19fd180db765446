return plan {
  model = require "models.mamba2" "tiny",
  batch = { global = 12, seq = 64 }, mesh = { tp = 3 },
  parallel = { tp {} },
}
