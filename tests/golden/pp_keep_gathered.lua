-- A stage gathers its units once a step, keeps them through all micro-batches, and reduces them once.
return plan {
  model = require "models.pairs" { layers = 3 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 6, micro = 1, seq = 16 },
  mesh = { pp = 2, dp_shard = 2 },
  parallel = { pp "1f1b", fsdp2 { keep_gathered = true } },
  optimizer = adamw { lr = 1e-3 },
}
