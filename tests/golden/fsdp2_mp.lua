-- FSDP2's mixed precision policy: bf16 units that return fp32. Units cast their inputs, and the backward pass casts back.
return plan {
  model = require "models.pairs" { layers = 2 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, ac "full",
    fsdp2 { reshard_last = false, mp = { param = "bf16", reduce = "fp32", output = "fp32" } } },
  optimizer = adamw { lr = 1e-3 },
}
