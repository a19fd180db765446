-- Qwen2-VL 7B on two DGX H100: a picture of 32 x 48 patches in front of each text. The vision encoder is
-- frozen and whole on every GPU, in bf16. Merger and decoder are sharded in separate units.
return plan {
  model = require "models.qwen2_vl" { size = "7b", rows = 32, columns = 48 },
  cluster = require "clusters.dgx_h100" { nodes = 2 },
  batch = { global = 128, micro = 2, seq = 1664 },
  mesh = { dp_shard = 16 },
  parallel = { ac "full", freeze { modules = { "encoder" }, shard = false, dtype = "bf16" }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-5 },
}
