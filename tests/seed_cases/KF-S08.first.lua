-- expect: error[out-of-range] seq_len must be positive: train.seq_len = -1
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = -1, grad_clip_norm = 0.0 },
  optimizer = { betas = { 0.9, 1.0 } },
  profiling = { start_step = 5, end_step = 3 },
  as = "original",
}
