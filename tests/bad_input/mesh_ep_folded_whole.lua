return plan {
  model = require "models.mixtral" "tiny", batch = { seq = 64 }, cluster = require "clusters.dgx_h100" { nodes = 3 },
  mesh = { dp_shard = 6, tp = 4, ep = 5, ep_mode = "folded" },
  parallel = { tp {}, ep {}, fsdp2 {} },
}
