return plan {
  model = require "models.llama" "tiny", batch = { seq = 64 }, cluster = require "clusters.dgx_h100" { nodes = 1 },
  mesh = { dp_shard = 8, ep = 2, ep_mode = "carved" },
  parallel = { fsdp2 {} },
}
