-- Materialised before it is sharded, the whole model would be on every device.
return plan {
  model = require "models.llama" "tiny",
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { meta {}, materialize {}, fsdp2 {} },
}
