-- 8-bit products in blocks: an operand has a power of two for each 32 numbers along the index that its
-- product sums. A block is on one rank, so no scale is reduced. Gathers over tp move numbers and scales of
-- activations as bytes.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.gpu" { gpu = "B200", nodes = 1 },
  batch = { global = 4, micro = 1, seq = 64 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, float8 "mxfp8", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
