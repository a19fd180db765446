-- Weights are gathered in 8 bits. One reduction a step finds the maxima of all weights. A unit becomes a pair: quantised
-- weights, and norms. Gathers over dp_shard move one byte for each number. tp cuts the weights, too.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, float8 { fsdp_gather = true }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
