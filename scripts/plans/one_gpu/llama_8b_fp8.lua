-- As llama_8b_bf16, with the products of the blocks in 8 bits.
return plan {
  model = require "models.llama" "3.1-8b",
  cluster = require "h200",
  batch = { global = 8, micro = 1, seq = 4096 },
  parallel = { float8 {}, compile { per = "block" } },
  precision = { param = "bf16", compute = "bf16", reduce = "bf16" },
  optimizer = adamw { lr = 3e-4, warmup_steps = 100, total_steps = 10000, state = "bf16",
    rounding = "stochastic" },
  steps = 6,
}
