-- Products fused with other ops: biases, GELU and residuals, and the sums of biases' gradients.
return plan {
  model = require "models.gpt2" { size = "tiny", layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 16, micro = 1, seq = 16 },
  mesh = { dp_shard = 8 },
  parallel = { fsdp2 {}, compile "model" },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
