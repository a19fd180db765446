return plan {
  model = require "models.mixtral" "tiny",
  batch = { global = 12, seq = 64 }, mesh = { ep = 2 }, parallel = { ep {}, fsdp2 {} },
}
