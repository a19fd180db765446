-- FSDP2's own order: shards are cast, packed and gathered to a buffer for each weight; gradients packed, then reduced.
return plan {
  model = require "models.pairs" { layers = 2 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { fsdp2 { copy = true } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
