-- Llama 3.1 70B on sequences of 131,072 tokens, 256 H100. The eight ranks of a node share the
-- heads. Eight nodes share each sequence, and pass keys and values around a ring. Weights are
-- sharded over all ranks with different tokens.
return plan {
  model = require "models.llama" "3.1-70b",
  cluster = require "clusters.dgx_h100" { nodes = 32 },
  batch = { global = 32, micro = 1, seq = 131072 },
  mesh = { dp_shard = 4, cp = 8, tp = 8 },
  parallel = { tp { sequence = true }, cp { mode = "ring" }, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4 },
}
