-- GPT-2 124M on one DGX A100 with DDP: 0.5 M tokens a step.
return plan {
  model = require "models.gpt2" "124m",
  cluster = require "clusters.dgx_a100" { nodes = 1 },
  batch = { global = 512, micro = 16, seq = 1024 },
  mesh = { dp_replicate = 8 },
  parallel = { ddp {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 6e-4, warmup_steps = 700, total_steps = 19560, min_lr_ratio = 0 },
}
