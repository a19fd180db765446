-- Two pipeline stages under 1F1B, FSDP2 over 2 on each: the messages and buffers of a stage.
return plan {
  model = require "models.pairs" { layers = 3 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 6, micro = 1, seq = 16 },
  mesh = { pp = 2, dp_shard = 2 },
  parallel = { pp "1f1b", fsdp2 {} },
  optimizer = adamw { lr = 1e-3 },
}
