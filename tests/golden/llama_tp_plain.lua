-- Tensor parallelism alone, without sequence parallelism: all-reduces, and no units to gather.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 2, seq = 16 },
  mesh = { tp = 2 },
  parallel = { tp { sequence = false } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
