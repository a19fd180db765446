-- A frozen encoder keeps its trained weights, so it is never built without storage.
return plan {
  model = require "models.llava" "tiny",
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { meta {}, freeze { modules = { "encoder" } }, fsdp2 {}, materialize {} },
}
