return plan {
  model = require "models.llama" "3.1-8b",
  batch = { global = 8, micro = 1, seq = 4 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  mesh = { tp = 8 },
  parallel = { tp { sequence = true } },
}
