-- The head and the loss in pieces: sequence and vocabulary parallel, over FSDP2.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, fsdp2 {}, tile { pieces = 3 } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
