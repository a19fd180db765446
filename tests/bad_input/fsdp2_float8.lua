return plan {
  model = require "models.llama" { size = "tiny", dim = 64, hidden = 128 }, batch = { global = 8, seq = 64 },
  mesh = { dp_shard = 8 }, cluster = require "clusters.dgx_h100" {},
  parallel = { float8 { fsdp_gather = true }, fsdp2 { offload = true } },
  precision = { compute = "bf16" },
}
