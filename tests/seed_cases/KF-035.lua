-- expect: ok parameters 6738415616
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 4096, n_layers = 32, n_heads = 32, vocab_size = 32000 },
  train = { batch_size = 1, seq_len = 64 },
}
