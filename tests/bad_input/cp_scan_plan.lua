return plan {
  model = require "models.mamba2" { size = "tiny" },
  batch = { global = 8, seq = 64 }, mesh = { cp = 2, tp = 2 },
  parallel = { tp { plan = { ["layers.*.mixer.conv_c"] = "sequence_parallel" } }, cp {}, ddp {} },
}
