-- WXFormer at 0.25 degrees on 16 A100: FSDP2 over data 4 x tensor 2 x domain 2. Each rank has half
-- of the rows. Each pole is padded with 160 rows, not with the published 80. The last level then
-- has 60 rows: 3 windows of 10 for each half.
return plan {
  cluster = require "clusters.dgx_a100" { nodes = 2 },
  model = require "models.wxformer_grid" { size = "0.25deg", pad_lat = 160 },
  batch = { global = 8, micro = 1, channels = 74, targets = 71, height = 640, width = 1280 },
  mesh = { dp_shard = 4, tp = 2, domain = 2 },
  parallel = { domain {}, tp {}, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3, clip_norm = 1.0 },
}
