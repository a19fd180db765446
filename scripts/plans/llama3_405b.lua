-- Llama-3.1-405B on 16,384 H100: 16 pipeline stages, 8 tensor ranks, 128 data ranks. The weights of a stage stay
-- gathered for the 16 micro-batches of a step.
return plan {
  model = require "models.llama" "3.1-405b",
  cluster = require "clusters.dgx_h100" { nodes = 2048 },
  batch = { global = 2048, micro = 1, seq = 8192 },
  mesh = { pp = 16, dp_shard = 128, tp = 8 },
  parallel = {
    pp "1f1b", tp { sequence = true }, ac "full",
    fsdp2 { reshard_after_forward = false, keep_gathered = true },
  },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 8e-5 },
}
