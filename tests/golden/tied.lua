-- A head tied to the embedding, over two pipeline stages and two data ranks. Both stages hold the table and sum its gradient.
return plan {
  model = require "models.pairs" { layers = 2, tied = true },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 1, seq = 16 },
  mesh = { pp = 2, dp_shard = 2 },
  parallel = { pp "1f1b", fsdp2 {} },
  optimizer = adamw { lr = 1e-3 },
}
