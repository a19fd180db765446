return plan {
  model = require "models.llama" { size = "tiny", hidden = 192, head_dim = 32 }, batch = { global = 8, seq = 48 }, mesh = { tp = 2 },
  parallel = { tp { sequence = true }, float8 "mxfp8" },
}
