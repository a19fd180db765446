-- WXFormer at 0.25 degrees on 16 A100: FSDP2 over 8 x tensor 2. (Data 4 x tensor 2 x domain 2 once the grid can
-- be split.)
return plan {
  cluster = require "clusters.dgx_a100" { nodes = 2 },
  model = require "models.wxformer_grid" "0.25deg",
  batch = { global = 8, micro = 1, channels = 74, targets = 71, height = 640, width = 1280 },
  mesh = { dp_shard = 8, tp = 2 },
  parallel = { tp {}, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3, clip_norm = 1.0 },
}
