-- Llama-3.2-1B on one H200, sequences of 4096. The gradient of each gated unit recomputes silu, as
-- torch.compile does: a kernel computes it faster than memory gives it back.
return plan {
  model = require "models.llama" "3.2-1b",
  cluster = require "h200",
  batch = { global = 32, micro = 4, seq = 4096 },
  parallel = {
    ac { modules = { "layers.*.feed_forward" }, ops = { "linear", "mul" } },
    compile { per = "block" },
  },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4, warmup_steps = 100, total_steps = 10000 },
  steps = 8,
}
