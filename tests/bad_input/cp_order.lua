return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 12, seq = 64 }, mesh = { cp = 2, dp_shard = 2 },
  parallel = { fsdp2 {}, ac "full", cp { mode = "all_to_all" } },
}
