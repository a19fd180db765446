-- Sequence parallel pairs over 2, FSDP2 over 2, every block recomputed, 2 micro-batches.
return plan {
  model = require "models.llama" { size = "tiny", layers = 2 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 1, seq = 16 },
  mesh = { dp_shard = 2, tp = 2 },
  parallel = { tp { sequence = true }, ac "full", fsdp2 { reshard_after_forward = true } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
