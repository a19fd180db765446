-- Context parallelism: sequences in a zigzag, keys and values are gathered. tp cuts a rank's part again.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 16 },
  mesh = { cp = 2, tp = 2 },
  parallel = { tp { sequence = true }, cp {}, ddp {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
