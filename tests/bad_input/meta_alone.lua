-- The model is built without storage, and no pass gives it any.
return plan {
  model = require "models.llama" "tiny",
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { meta {}, fsdp2 {} },
}
