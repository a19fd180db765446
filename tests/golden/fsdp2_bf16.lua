-- Weights and moments in bf16 without an fp32 copy: the update rounds weights at random.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { fsdp2 {} },
  precision = { param = "bf16", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3, state = "bf16", rounding = "stochastic" },
}
