return plan {
  model = require "models.llama" { size = "tiny", hidden = 192 }, batch = { global = 8, seq = 64 }, mesh = { dp_shard = 8 },
  cluster = require "clusters.dgx_h100" { nodes = 1 }, parallel = { float8 "nvfp4", fsdp2 {} },
}
