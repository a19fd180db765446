return plan {
  model = require "models.mixtral" "tiny", cluster = require "clusters.dgx_h100" {},
  batch = { global = 12, seq = 64 }, mesh = { dp_shard = 4, tp = 4, ep = 3, ep_mode = "folded" },
  parallel = { tp {}, ep {}, fsdp2 {} },
}
