-- Llama 3.1 70B on sequences of 131,072 tokens, 256 H100: heads over the eight ranks of a node, each sequence over eight nodes, where
-- its keys and values go round a ring; weights are sharded over all that have tokens of their own.
return plan {
  model = require "models.llama" "3.1-70b",
  cluster = require "clusters.dgx_h100" { nodes = 32 },
  batch = { global = 32, micro = 1, seq = 131072 },
  mesh = { dp_shard = 4, cp = 8, tp = 8 },
  parallel = { tp { sequence = true }, cp { mode = "ring" }, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4 },
}
