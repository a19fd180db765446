-- The model is built without storage, cut over 2, sharded over 4, then created in place.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 4, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { meta {}, tp {}, fsdp2 {}, materialize {} },
}
