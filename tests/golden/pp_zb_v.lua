-- Four stages in a V on two ranks (ZB-V): rank 0 holds the first and the last stage. Weight gradients fill the bubble.
return plan {
  model = require "models.pairs" { layers = 4 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 3, micro = 1, seq = 16 },
  mesh = { pp = 2 },
  parallel = { pp { schedule = "zb_v", cap = 4 } },
  optimizer = adamw { lr = 1e-3 },
}
