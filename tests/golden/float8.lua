-- Tensorwise 8-bit products in sequence parallel pairs over 2 and FSDP2 over 4. All ranks that hold a part of a
-- tensor find its largest magnitude together. Gathers move one byte for each number, and the backward pass quantises
-- weights again.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 4, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, float8 {}, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
