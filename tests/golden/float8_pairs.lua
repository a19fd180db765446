-- 4-bit products (nvfp4): an operand has a scale for each 16 numbers along the index that its product
-- sums, and one scale for the tensor. Scales of a weight belong to squares of 16 x 16 numbers. A byte has two
-- numbers, also when activations are gathered over tp.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.gpu" { gpu = "B200", nodes = 1 },
  batch = { global = 4, micro = 1, seq = 64 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, float8 "nvfp4", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
