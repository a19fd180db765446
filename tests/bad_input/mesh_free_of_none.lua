return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  cluster = require "clusters.dgx_h100" { nodes = 2 },
  mesh = { dp_shard = -1, pp = 3, tp = 3 },
}
