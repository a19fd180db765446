-- Llama-3.1-8B on 2 nodes of 8 H100: tensor and sequence parallelism over pairs of GPUs, FSDP2 over 8 pairs.
return plan {
  model = require "models.llama" "3.1-8b",
  cluster = require "clusters.dgx_h100" { nodes = 2 },
  batch = { global = 64, micro = 1, seq = 8192 },
  mesh = { dp_shard = 8, tp = 2 },
  parallel = { tp { sequence = true }, ac "selective", fsdp2 { reshard_after_forward = true } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4 },
}
