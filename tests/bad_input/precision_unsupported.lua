local cluster = require "clusters.local_cpu" {}
cluster.device.peak_flops = { f32 = 60e9, f64 = 30e9 }
return plan {
  model = require "models.llama" "tiny",
  cluster = cluster,
  batch = { global = 8, micro = 1, seq = 32 },
  precision = { compute = "bf16" },
}
