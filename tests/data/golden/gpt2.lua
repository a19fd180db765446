-- The GPT-2 of make_golden.py, through the library's own model. PyTorch computed the results.
return plan {
  model = require "models.gpt2" { size = "tiny", dim = 12, heads = 3, head_dim = 4, vocab = 31,
    positions = 9 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 9, denominator = "all" },
  mesh = { dp_shard = 2, tp = 3 },
  parallel = { tp { sequence = true }, ac "selective", fsdp2 {} },
  precision = { param = "fp64", compute = "fp64", reduce = "fp64" },
  optimizer = adamw { lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-6, weight_decay = 0.1,
    clip_norm = 0.5 },
}
