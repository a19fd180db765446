-- Weights gathered in 8 bits: one maximum of all of them a step, units in pairs (the covered weights
-- apart from the norms), one byte a value over dp_shard, on top of tensor parallelism.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, float8 { fsdp_gather = true }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
