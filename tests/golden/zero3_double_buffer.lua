-- ZeRO-3: blocks use two registered buffers in turn. The root unit is cut into buckets.
return plan {
  model = require "models.pairs" { layers = 3 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 4, micro = 1, seq = 16 }, mesh = { dp_shard = 2 },
  parallel = { zero { nccl_ub = true, bucket_size = 20000 } },
  optimizer = adamw { lr = 1e-3 },
}
