-- Rowwise 8-bit products that keep their inputs in 8 bits: the form for the gradient of the weight is
-- made in the forward pass. The projection behind the attention keeps its 16-bit input, because the
-- gradient of the attention reads it too.
return plan {
  model = require "models.pairs" { layers = 1 },
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 4, micro = 1, seq = 16 },
  mesh = { dp_shard = 4, tp = 2 },
  parallel = { tp { sequence = true }, float8 { recipe = "rowwise", keep_quantised = true }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
