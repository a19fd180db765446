-- Llama 3.1 8B on sequences of 131,072 tokens, 32 H100. The eight ranks of a node split each
-- sequence, and exchange tokens for heads around attention. Weights are sharded over all 32 ranks.
return plan {
  model = require "models.llama" "3.1-8b",
  cluster = require "clusters.dgx_h100" { nodes = 4 },
  batch = { global = 32, micro = 1, seq = 131072 },
  mesh = { dp_shard = 4, cp = 8 },
  parallel = { cp { mode = "all_to_all" }, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4 },
}
