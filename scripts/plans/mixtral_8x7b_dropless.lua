-- Mixtral 8x7B as in mixtral_8x7b.lua, but without dropped tokens: an expert gets all tokens that
-- choose it. A rank has memory for one and a half times its mean share.
return plan {
  model = require "models.mixtral" { size = "8x7b", capacity_factor = "dropless" },
  cluster = require "clusters.dgx_h100" { nodes = 4 },
  batch = { global = 128, micro = 1, seq = 4096 },
  mesh = { dp_shard = 2, ep = 8, tp = 2 },
  parallel = { tp { sequence = true }, ep { bound = 1.5 }, ac "full", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 3e-4 },
}
