-- expect: warning[mean-of-means]
-- expect: ok micro-batches 2
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 2, seq_len = 64, grad_accum_steps = 2 },
  as = "original",
}
