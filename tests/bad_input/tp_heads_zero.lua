return plan {
  model = require "models.llama" { size = "3.1-8b", heads = 0 },
  batch = { global = 8, micro = 1, seq = 1024 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp {  }, fsdp2 {} },
}
