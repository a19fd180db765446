-- As float8, but the whole model is compiled. The kernel of a norm, of its gradient or of a gated feed-forward also finds the
-- largest magnitude of its output.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 4, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, float8 {}, fsdp2 {}, compile { per = "block" } },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
