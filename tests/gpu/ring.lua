-- GPT-2's heads in two narrow layers. A ring of two ranks has four chunks of 256 tokens, so that
-- attention runs in full tiles. all.sh compares its loss with one rank's.
return plan {
  model = require "models.gpt2" { size = "tiny", dim = 256, positions = 1024 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 2, seq = 1024 },
  mesh = { cp = 2 },
  parallel = { cp { mode = "ring" } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3, warmup_steps = 2, total_steps = 100 },
  steps = 8,
}
