-- Biases cut with columns and whole with rows; gradients of what both ranks hold alike are averaged over
-- tp, after the sums of those that come in parts.
return plan {
  model = require "models.gpt2" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 2, seq = 16 },
  mesh = { tp = 2 },
  parallel = { tp { sequence = true, sync_replicated_gradients = true } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
