-- Sequence parallel pairs over 2, FSDP2 over 4, every block recomputed, 2 micro-batches.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, ac "full", fsdp2 { reshard_after_forward = true } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
