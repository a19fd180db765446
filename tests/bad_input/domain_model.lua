-- A U-Net of 16 rows has 4 rows at its last level, too few for three ranks. The hint names sizes that fit all levels.
return plan {
  model = require "models.unet" "tiny",
  cluster = require "clusters.local_cpu" {},
  batch = { global = 1, micro = 1, channels = 2, height = 16, width = 32 },
  mesh = { domain = 3 },
  parallel = { domain {}, ddp {} },
}
