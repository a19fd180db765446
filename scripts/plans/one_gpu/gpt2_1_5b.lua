-- GPT-2 1.5B on one H200: 0.25 M tokens a step.
return plan {
  model = require "models.gpt2" "1.5b",
  cluster = require "h200",
  batch = { global = 256, micro = 16, seq = 1024 },
  parallel = { ac "selective", compile { per = "block" } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 2e-4, warmup_steps = 700, total_steps = 32000 },
  steps = 8,
}
