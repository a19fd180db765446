return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 128 }, mesh = { cp = 2 },
  parallel = { cp {}, float8 "nvfp4", fsdp2 {} },
}
