return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 }, mesh = { dp_shard = 2 },
  parallel = { float8 { recipe = "mxfp8", fsdp_gather = true }, fsdp2 {} },
}
