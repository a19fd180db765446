return plan {
  model = require "models.llama" "tiny", batch = { seq = 64 }, cluster = require "clusters.dgx_h100" { nodes = 1 },
  mesh = { dp_shard = 8, ep = 4, ep_mode = "folded" },
  parallel = { fsdp2 {} },
}
