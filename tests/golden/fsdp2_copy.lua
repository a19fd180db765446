-- Copies as in PyTorch's FSDP2: shards are cast, packed, gathered, and copied out to each weight; gradients are packed.
return plan {
  model = require "models.pairs" { layers = 2 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { fsdp2 { copy = true } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
