return plan {
  model = require "models.mixtral" { size = "tiny", layers = 1, capacity_factor = "dropless" },
  batch = { global = 2, micro = 1, seq = 32 }, mesh = { cp = 2, ep = 2 },
  parallel = { ep {}, cp {}, fsdp2 {} },
}
