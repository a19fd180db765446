return plan {
  model = require "models.mamba2" { size = "tiny" },
  batch = { global = 12, seq = 64 }, mesh = { cp = 2, tp = 2 },
  parallel = { tp {}, cp { mode = "all_to_all" }, fsdp2 {} },
}
