-- expect: error[out-of-range] batch_size must be positive: train.batch_size = 0
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 0, seq_len = 64 },
}
