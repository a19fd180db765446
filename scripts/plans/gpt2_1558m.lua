-- GPT-2 1.5B on one DGX H100 with FSDP2. It has 25 heads, so tp could only be 5 or 25.
return plan {
  model = require "models.gpt2" "1.5b",
  cluster = require "clusters.dgx_h100" { nodes = 1 },
  batch = { global = 512, micro = 8, seq = 1024 },
  mesh = { dp_shard = 8 },
  parallel = { ac "selective", fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 2e-4, warmup_steps = 700, total_steps = 32000 },
}
