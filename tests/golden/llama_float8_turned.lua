-- Hopper's 8-bit products need operands that are stored along the summed index. The quantising kernel makes the transposed
-- copy. The copy is kept instead of the original, and is made again where attention is recomputed.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { float8 {}, ac "selective", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
