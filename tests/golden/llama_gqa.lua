-- tp has more ranks than there are KV heads, so it is refined into 2 x 2. K and V are whole on the inner axis, and their
-- gradients are summed over it.
return plan {
  model = require "models.qwen" { size = "3-tiny", layers = 1, heads = 4, kv_heads = 2 },
  cluster = require "clusters.local_cpu" { devices_per_node = 4 },
  batch = { global = 2, micro = 2, seq = 16 },
  mesh = { tp = 4 },
  parallel = { tp { sequence = true } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
