-- Parameters, gradients and moments are in host memory: shards are copied in before each gather, gradients are copied
-- out, and the host updates.
return plan {
  model = require "models.pairs" { layers = 2 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 16, micro = 1, seq = 16 },
  mesh = { dp_replicate = 2, dp_shard = 4 },
  parallel = { fsdp2 { offload = true } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
