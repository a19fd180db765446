-- A small U-Net that learns how a wave travels, on two ranks of this machine. Without --data the fields are made
-- up; --data FILE reads a file of numpy.save: float32 of shape (times, channels, height, width).
return plan {
  cluster = require "clusters.local_cpu" {},
  model = require "models.unet" "tiny",
  batch = { global = 8, micro = 2, channels = 2, height = 16, width = 32 },
  mesh = { dp_shard = 2 },
  parallel = { fsdp2 {} },
  optimizer = adamw { lr = 3e-3 },
  steps = 60,
}
