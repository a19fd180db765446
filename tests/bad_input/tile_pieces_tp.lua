return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 }, mesh = { tp = 4 },
  parallel = { tp { sequence = true, plan_only = true, plan = { ["layers.*.attention.wo"] = "rowwise" } }, tile { pieces = 20 } },
}
