return plan {
  model = require "models.llama" "tiny",
  batch = { global = 8, micro = 1, seq = 32 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp {}, fsdp2 { reshard_after_forward = true } },
}
