return plan {
  model = require "models.mixtral" "tiny", batch = { seq = 64 }, cluster = require "clusters.dgx_h100" { nodes = 1 },
  mesh = { dp_shard = 4, tp = 2, ep = 2, ep_mode = "folded" },
  parallel = { tp {}, fsdp2 {} },
}
