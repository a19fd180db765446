-- Mixtral 8x7B on 32 H100: the experts of a layer are spread over eight pairs of ranks, and tp
-- splits each expert in two. All other parameters are sharded over all 16 data ranks.
return plan {
  model = require "models.mixtral" "8x7b",
  cluster = require "clusters.dgx_h100" { nodes = 4 },
  batch = { global = 128, micro = 1, seq = 4096 },
  mesh = { dp_shard = 2, ep = 8, tp = 2 },
  parallel = { tp { sequence = true }, ep {}, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4 },
}
