-- Llama-3.1-8B on one H200 with weights and states in bf16 (64 GB); nothing is recomputed. An update
-- of a bf16 weight is often smaller than half of the weight's last digit, so rounding is stochastic.
return plan {
  model = require "models.llama" "3.1-8b",
  cluster = require "h200",
  batch = { global = 8, micro = 1, seq = 4096 },
  parallel = { compile { per = "block" } },
  precision = { param = "bf16", compute = "bf16", reduce = "bf16" },
  optimizer = adamw { lr = 3e-4, warmup_steps = 100, total_steps = 10000, state = "bf16",
    rounding = "stochastic" },
  steps = 6,
}
