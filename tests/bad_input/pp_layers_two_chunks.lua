return plan {
  model = require "models.llama" { size = "tiny", layers = 4 },
  cluster = require "clusters.dgx_h100" {},
  batch = { global = 8, micro = 1, seq = 32 },
  mesh = { pp = 4, dp_shard = 2 },
  parallel = { pp "v_half", fsdp2 {} },
}
