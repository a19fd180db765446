-- A state-space layer and attention under context parallelism: tp cuts the groups of the scan, cp cuts the heads of each group.
return plan {
  model = require "models.nemotron_h" { size = "tiny", pattern = "M*" },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 16 },
  mesh = { cp = 2, tp = 2 },
  parallel = { tp { sequence = true }, cp {}, ddp {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
