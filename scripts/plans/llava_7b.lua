-- LLaVA-1.5 7B on two DGX H100. The vision encoder is frozen and whole on every GPU, in bf16.
-- Projector and decoder are sharded in separate units.
return plan {
  model = require "models.llava" "1.5-7b",
  cluster = require "clusters.dgx_h100" { nodes = 2 },
  batch = { global = 128, micro = 2, seq = 1472 },
  mesh = { dp_shard = 16 },
  parallel = { ac "full", freeze { modules = { "encoder" }, shard = false, dtype = "bf16" }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 2e-5 },
}
