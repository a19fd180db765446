-- If the model is materialised before it is sharded, every device holds the whole model.
return plan {
  model = require "models.llama" "tiny",
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { meta {}, materialize {}, fsdp2 {} },
}
