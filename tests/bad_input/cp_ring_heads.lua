return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 12, seq = 64 }, mesh = { cp = 8 },
  parallel = { cp { mode = "ring", all_to_all = 4 }, fsdp2 {} },
}
