-- The U-Net of unet_wave with its fields split over domain: each of two ranks of this machine has 8
-- of the 16 rows.
return plan {
  cluster = require "clusters.local_cpu" {},
  model = require "models.unet" "tiny",
  batch = { global = 8, micro = 4, channels = 2, height = 16, width = 32 },
  mesh = { domain = 2 },
  parallel = { domain { keep_halos = true }, ddp {} },
  optimizer = adamw { lr = 3e-3 },
  steps = 60,
}
