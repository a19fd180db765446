-- Llama-3.2-1B on one H200, sequences of 4096.
return plan {
  model = require "models.llama" "3.2-1b",
  cluster = require "h200",
  batch = { global = 32, micro = 4, seq = 4096 },
  parallel = { compile { per = "block" } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4, warmup_steps = 100, total_steps = 10000 },
  steps = 8,
}
