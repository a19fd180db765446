return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  parallel = { float8 {} }, precision = { param = "fp64", compute = "fp64", reduce = "fp64" },
}
