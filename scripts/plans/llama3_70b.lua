-- Llama-3.1-70B on 32 nodes of 8 H100: tensor parallelism within a node, FSDP2 over the 32 nodes.
return plan {
  model = require "models.llama" "3.1-70b",
  cluster = require "clusters.dgx_h100" { nodes = 32 },
  batch = { global = 512, micro = 2, seq = 8192 },
  mesh = { dp_shard = 32, tp = 8 },
  parallel = { tp { sequence = true }, ac "full", fsdp2 { reshard_after_forward = true } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1.5e-4 },
}
