return plan {
  model = require "models.llama" { size = "3.1-8b", heads = 24, kv_heads = 8, head_dim = 128 },
  batch = { global = 8, micro = 1, seq = 1024 },
  cluster = require "clusters.dgx_h100" { nodes = 2 },
  mesh = { tp = 16 },
  parallel = { tp {} },
}
