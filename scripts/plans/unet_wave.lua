-- A small U-Net that learns to predict how a wave moves, on two ranks of this machine. Without
-- --data the fields are generated. --data FILE reads a file of numpy.save: float32 of shape (times,
-- channels, height, width).
return plan {
  cluster = require "clusters.local_cpu" {},
  model = require "models.unet" "tiny",
  batch = { global = 8, micro = 2, channels = 2, height = 16, width = 32 },
  mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
  optimizer = adamw { lr = 3e-3 },
  steps = 60,
}
