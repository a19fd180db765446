return plan {
  model = require "models.llama" { size = "tiny", hidden = 176 }, batch = { global = 4, seq = 64 }, mesh = { tp = 2 },
  parallel = { tp {}, float8 {} },
}
