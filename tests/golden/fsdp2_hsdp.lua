-- Two replicas of FSDP2 over 4. Between forward and backward pass, 2 of the 4 ranks together keep whole weights.
return plan {
  model = require "models.pairs" { layers = 2 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_replicate = 2, dp_shard = 4 },
  parallel = { ac "full", fsdp2 { reshard_after_forward = 2 } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
