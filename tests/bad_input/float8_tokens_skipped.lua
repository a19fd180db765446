return plan {
  model = require "models.llama" { size = "tiny", hidden = 192, head_dim = 32 }, batch = { global = 8, seq = 16 },
  parallel = { float8 { recipe = "mxfp8", skip_indivisible = true } },
}
