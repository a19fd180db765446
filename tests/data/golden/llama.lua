-- The Llama of make_golden.py, through the library's own model. PyTorch computed the results.
return plan {
  model = require "models.llama" { size = "tiny", dim = 16, heads = 4, kv_heads = 2, head_dim = 8,
    hidden = 24, vocab = 29, rope_scaling = { factor = 8, low = 1, high = 4, context = 100 } },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 3, micro = 1, seq = 10, denominator = "all" },
  mesh = { dp_shard = 3, tp = 2 },
  parallel = { tp { sequence = true }, fsdp2 {} },
  precision = { param = "fp64", compute = "fp64", reduce = "fp64" },
  optimizer = adamw { lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-6, weight_decay = 0.1,
    clip_norm = 0.5 },
}
