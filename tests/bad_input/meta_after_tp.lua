-- The result of tensor parallelism would be thrown away.
return plan {
  model = require "models.llama" "tiny",
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp {}, meta {}, fsdp2 {}, materialize {} },
}
