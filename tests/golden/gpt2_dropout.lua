-- Dropout of residuals, scores and embedding under tensor parallelism and full recomputation, smoothed
-- labels over a split vocabulary with a z-loss, and a mean of micro-batches' means.
return plan {
  model = require "models.gpt2" { size = "tiny", layers = 1, vocab = 257, dropout = 0.1,
    label_smoothing = 0.1, z_loss = 1e-4 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 8, micro = 2, seq = 16, denominator = "microbatch_mean" },
  mesh = { dp_shard = 2, tp = 2 },
  parallel = { tp { sequence = true }, ac "full", fsdp2 {} },
  optimizer = adamw { lr = 6e-4 },
}
