-- Llama-3.1-70B on 8 nodes of 8 H100: four pipeline stages of two nodes each. tp splits weights within a
-- node, and FSDP2 shards them over the two nodes of a stage.
return plan {
  model   = require "models.llama" "3.1-70b",
  cluster = require "clusters.dgx_h100" { nodes = 8 },
  batch   = { global = 64, micro = 1, seq = 8192 },
  mesh    = { pp = 4, dp_shard = 2, tp = 8 },
  parallel = { pp "1f1b", tp { sequence = true }, ac "full", fsdp2 { reshard_after_forward = false } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1.5e-4 },
}
