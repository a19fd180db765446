return plan {
  cluster = require "clusters.local_cpu" {},
  model = require "models.wxformer_grid" { size = "tiny", decoder = "transposed" },
  batch = { global = 2, micro = 2, channels = 4, targets = 3, height = 32, width = 64 },
}
