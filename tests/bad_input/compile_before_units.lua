-- A block that is compiled before it is sharded may hold no unit.
return plan {
  model = require "models.llama" "tiny",
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 8, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { ac "full", compile "block", fsdp2 { units = { "layers.*.attention", "layers.*.feed_forward" } } },
}
