-- No parallelism: every other plan must give the same result.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 16 },
  mesh = {},
  parallel = {},
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
