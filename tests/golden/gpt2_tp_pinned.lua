-- Biases of column linears are cut, those of row linears are whole. Gradients of parameters that both ranks hold are
-- averaged over tp, after partial gradients are summed.
return plan {
  model = require "models.gpt2" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 2, seq = 16 },
  mesh = { tp = 2 },
  parallel = { tp { sequence = true, sync_replicated_gradients = true } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
