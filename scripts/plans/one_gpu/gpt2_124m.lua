-- GPT-2 124M on one H200: 0.5 M tokens a step, nothing recomputed.
return plan {
  model = require "models.gpt2" "124m",
  cluster = require "h200",
  batch = { global = 512, micro = 64, seq = 1024 },
  parallel = { compile { per = "block" } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 6e-4, warmup_steps = 700, total_steps = 19560, min_lr_ratio = 0 },
  steps = 12,
}
