return plan {
  model = require "models.llama" "3.1-8b",
  batch = { global = 8, micro = 1, seq = 1024 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true, async = true }, fsdp2 {} },
}
