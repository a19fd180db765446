-- A small WXFormer that learns to predict how a wave moves, on eight ranks of this machine: FSDP2
-- over data 2 x tensor 2 x domain 2. Each rank has 32 of the 64 rows. The grid and the levels are
-- scaled-down versions of those of the published model.
return plan {
  cluster = require "clusters.local_cpu" {},
  model = require "models.wxformer_grid" "tiny",
  batch = { global = 8, micro = 2, channels = 4, targets = 3, height = 64, width = 64 },
  mesh = { dp_shard = 2, tp = 2, domain = 2 },
  parallel = { domain {}, tp {}, fsdp2 {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = adamw { lr = 3e-3, clip_norm = 1.0 },
  steps = 60,
}
