return plan {
  model = require "models.llama" { size = "tiny", hidden = 160 }, batch = { global = 8, seq = 64 }, mesh = { tp = 2 },
  parallel = { tp {}, float8 "mxfp8" },
}
