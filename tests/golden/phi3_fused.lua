-- Fused projections of unequal segments: q, k and v by groups, cut by their heads; gate and up by features.
return plan {
  model = require "models.phi" { size = "3-tiny", layers = 1, kv_heads = 2, fused = true },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 2, seq = 16 },
  mesh = { tp = 2 },
  parallel = { tp { sequence = true } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
