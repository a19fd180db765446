-- Blocks are recomputed, but not attention and the products before and after it: their outputs are kept.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, ac { ops = { "attention", "linear_q", "linear_kv", "linear_o" } }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
