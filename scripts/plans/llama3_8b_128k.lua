-- Llama 3.1 8B on sequences of 131,072 tokens, 32 H100: each is shared by the eight ranks of a node, which exchange tokens for
-- heads around attention; weights are sharded over all 32.
return plan {
  model = require "models.llama" "3.1-8b",
  cluster = require "clusters.dgx_h100" { nodes = 4 },
  batch = { global = 32, micro = 1, seq = 131072 },
  mesh = { dp_shard = 4, cp = 8 },
  parallel = { cp { mode = "all_to_all" }, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4 },
}
