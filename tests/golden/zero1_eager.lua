-- ZeRO-1: weights are gathered right after the update, so they are whole between steps.
return plan {
  model = require "models.pairs" { layers = 2 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { zero { strategy = "optim", gather = "eager" } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
}
