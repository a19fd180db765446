return plan {
  model = require "models.llama" { size = "tiny", heads = 8, kv_heads = 1 },
  batch = { global = 12, seq = 64 }, mesh = { cp = 2, tp = 2 },
  parallel = { tp {}, cp { mode = "all_to_all" }, fsdp2 {} },
}
